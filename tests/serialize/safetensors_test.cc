// Safetensors files that are malformed.
#include <doctest/doctest.h>

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include "serialize/import/safetensors.h"
#include "tests/serialize/gguf_builder.h"
#include "tests/serialize/safetensors_writer.h"

using namespace tessera;
using namespace tessera::testing;

TEST_CASE("malformed_safetensors_are_refused_with_a_reason") {
  const std::vector<float> four = {1, 2, 3, 4};
  const auto one = [&] { return SafetensorsWriter().f32("a", "[2,2]", four); };
  const std::string data(16, 'x');
  const auto header = [&](std::string_view text) { return SafetensorsWriter::file_of(text, data); };
  std::string huge = one().finish();
  for (size_t i = 0; i < 8; ++i) huge[i] = i == 7 ? '\x7f' : '\xff';
  struct Case {
    std::string file;
    std::string_view words;
  };
  const Case cases[] = {
      {"", "fewer than 8 bytes"},
      {huge, "its header has 9223372036854775807 bytes"},
      {one().finish().substr(0, 20), "its header has"},
      {one().finish().substr(0, 40), "its header has"},
      {one().finish() + "x", "its data have 17 bytes, its tensors 16"},
      {SafetensorsWriter().entry("a", "F32", "[2,2]", 4, 20, data + "1234").finish(),
       "have a hole at byte 0"},
      {one().entry("b", "F32", "[1]", 12, 16, "").finish(), "overlap"},
      {one().entry("b", "F32", "[1]", 16, 20, "").finish(), "is at bytes 16 to 20 of 16"},
      {one().f32("a", "[2,2]", four).finish(), "'a' is there twice"},
      {one().tensor("b", "F31", "[1]", "xxxx").finish(), "dtype 'F31', which is not known"},
      {one().tensor("b", "F64", "[1]", "xxxx").finish(), "has 4 bytes, wanted 8"},
      {one().entry("b", "F32", "[4611686018427387904,4611686018427387904]", 16, 16, "").finish(),
       "more elements than"},
      {one().entry("b", "F32", "[1,1,1,1,1,1,1]", 16, 20, "xxxx").finish(), "shape of 'b' is longer than 6"},
      {one().entry("b", "F32", "[1]", 20, 16, "xxxx").finish(), "bytes 20 to 16"},
      {header(R"({"a":{"dtype":"F32","shape":[-4],"data_offsets":[0,16]}})"), "a negative number"},
      {header(R"({"a":{"dtype":"F32","shape":[4.0],"data_offsets":[0,16]}})"), "a fraction"},
      {header(R"({"a":{"dtype":"F32","shape":[4],"data_offsets":[0,16],"more":1}})"), "a field 'more'"},
      {header(R"({"a":{"dtype":"F32","shape":[4],"shape":[4],"data_offsets":[0,16]}})"), "has shape twice"},
      {header(R"({"a":{"dtype":"F32","shape":[4]}})"), "wants dtype, shape and two data_offsets"},
      {header(R"({"a":{"dtype":"F32","shape":[[4]],"data_offsets":[0,16]}})"), "a list"},
      {header(R"({"a":[]})"), "a list"},
      {header(R"({"a":{"dtype":"F32","shape":[4],"data_offsets":[0,NaN]}})"), "is not JSON"},
      {header(R"({"__metadata__":{"a":{}}})"), "an object"},
      {header(R"([])"), "does not begin with"},
      {header("{" + std::string(100000, '[')), "is not JSON"},
  };
  for (const Case& it : cases) {
    CAPTURE(it.file.substr(0, 200));
    const auto begin = std::chrono::steady_clock::now();
    const auto tensors = read_safetensors(*source_of(it.file));
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin;
    CAPTURE(tensors.status().to_string());
    CHECK(!tensors.ok());
    CHECK(tensors.status().message().find(it.words) != std::string_view::npos);
    CHECK(elapsed.count() < 1);
  }
  CHECK(read_safetensors(*source_of(one().raw(R"("__metadata__":{"format":"pt"})").finish())).ok());
  CHECK(read_safetensors(*source_of(one().entry("empty", "F32", "[0,3]", 16, 16, "").finish())).ok());
  CHECK(read_safetensors(*source_of(one().entry("scalar", "U8", "[]", 16, 17, "x").finish())).ok());
}
