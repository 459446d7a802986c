// Importance matrices of both formats, and invalid ones.
#include "serialize/importance_matrix.h"

#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "tests/serialize/gguf_builder.h"
#include "tests/serialize/test_data.h"

using namespace tessera;
using namespace tessera::testing;

namespace {

template <class T>
void put(std::string& out, T value) {
  char bytes[sizeof value];
  std::memcpy(bytes, &value, sizeof value);
  out.append(bytes, sizeof value);
}

// A file in the older format; `entries`, `calls`, `count` and `name_bytes`: numbers that it states, right or wrong.
std::string older(const std::vector<float>& values, int32_t entries = 1, int32_t calls = 2,
                  int32_t count = -1, int32_t name_bytes = -1) {
  const std::string name = "blk.0.attn_q.weight";
  std::string file;
  put(file, entries);
  put(file, name_bytes < 0 ? static_cast<int32_t>(name.size()) : name_bytes);
  file += name;
  put(file, calls);
  put(file, count < 0 ? static_cast<int32_t>(values.size()) : count);
  for (const float value : values) put(file, value);
  return file;
}

GgufBuilder gguf(const std::vector<float>& sums, const std::vector<float>& counts) {
  GgufBuilder w;
  w.text("general.type", "imatrix");
  w.tensor_f32("blk.0.attn_q.weight.in_sum2", {sums.size()}, sums);
  w.tensor_f32("blk.0.attn_q.weight.counts", {1, counts.size()}, counts);
  return w;
}

Status status_of(const std::string& file) { return ImportanceMatrix::read(source_of(file)).status(); }

void check_refused(const std::string& file, std::string_view words) {
  const Status status = status_of(file);
  CAPTURE(status.to_string());
  CHECK(status.code() == StatusCode::kCorrupt);
  CHECK(status.message().find(words) != std::string_view::npos);
}

}  // namespace

TEST_CASE("an importance matrix is read from both formats") {
  const std::vector<float> wanted = {1, 0, 2.5f, 4};
  std::string with_end = older({2, 0, 5, 8});
  put(with_end, int32_t{7});  // optional end: calls, then the text's name
  for (const std::string& file : {older({2, 0, 5, 8}), with_end, gguf({8, 0, 20, 32}, {8}).finish()}) {
    const auto matrix = ImportanceMatrix::read(source_of(file));
    REQUIRE(matrix.ok());
    CHECK(matrix->size() == 1);
    const std::span<const float> found = matrix->find("blk.0.attn_q.weight");
    CHECK(std::vector<float>(found.begin(), found.end()) == wanted);
    CHECK(matrix->find("blk.0.attn_k.weight").empty());
  }
}

TEST_CASE("entries of several matrices have the means of each, one after the other") {
  GgufBuilder w = gguf({8, 0, 20, 32}, {8});
  w.tensor_f32("blk.0.ffn_up_exps.weight.in_sum2", {2, 2}, {1, 2, 3, 4});
  w.tensor_f32("blk.0.ffn_up_exps.weight.counts", {1, 2}, {1, 0});
  const auto matrix = ImportanceMatrix::read(source_of(w.finish()));
  REQUIRE(matrix.ok());
  CHECK(matrix->size() == 2);
  const std::span<const float> found = matrix->find("blk.0.ffn_up_exps.weight");
  // A matrix with count 0 gets equal weights of 1.
  CHECK(std::vector<float>(found.begin(), found.end()) == std::vector<float>{1, 2, 1, 1});
}

TEST_CASE("importance matrices with wrong numbers are refused") {
  const float infinite = std::numeric_limits<float>::infinity();
  check_refused("", "needs 4 bytes");
  check_refused(older({1}, 0), "neither GGUF nor the older form");
  check_refused(older({1}, -5), "neither GGUF nor the older form");
  check_refused(older({1}, 0x7fffffff), "neither GGUF nor the older form");
  check_refused(older({1}, 2), "");
  check_refused(older({1, 2}, 1, 1, 0x7fffffff), "2147483647 values");
  check_refused(older({1, 2}, 1, 1, 0), "0 values");
  check_refused(older({1, 2}, 1, 1, 2, 0x7fffffff), "a name of 2147483647 bytes");
  check_refused(older({1, 2}, 1, 1, 2, 0), "a name of 0 bytes");
  check_refused(older({1, -2}), "value 1 is -1");
  check_refused(older({infinite, 2}), "value 0 is inf");
  check_refused(gguf({1, std::nanf("")}, {1}).finish(), "value 1 is");
  check_refused(gguf({1, 2}, {-1}).finish(), "count of -1");
  check_refused(gguf({1, 2, 3}, {1, 1}).finish(), "3 sums for 2 counts");
  check_refused(GgufBuilder().text("general.type", "imatrix").tensor_f32("a.in_sum2", {1}, {1}).finish(),
                "sums and no counts");
  check_refused(GgufBuilder().text("general.type", "imatrix").finish(), "without entries");
  check_refused(small_llama(true).finish(), "wanted 'imatrix'");
  check_refused(GgufBuilder()
                    .text("general.type", "imatrix")
                    .tensor("a.in_sum2", 1, {2}, "abcd")
                    .tensor_f32("a.counts", {1}, {1})
                    .finish(),
                "holds f32");
}

TEST_CASE("a truncated importance matrix is refused") {
  for (const std::string& file : {older({2, 0, 5, 8}), gguf({8, 0, 20, 32}, {8}).finish()})
    for (size_t size = 0; size < file.size(); ++size) CHECK_FALSE(status_of(file.substr(0, size)).ok());
}
