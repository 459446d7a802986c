// Sequence files with states of recurrent layers: rows of impossible sizes are refused, with the size, before memory is allocated.
#include <doctest/doctest.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "serialize/envelope.h"
#include "serialize/sequence_file.h"
#include "tests/serialize/gguf_builder.h"
#include "tests/serialize/test_data.h"

using namespace tessera;
using namespace tessera::testing;

namespace {

// A file with one state of pages, no token, and one row of state f32[3, 5].
std::string file_with_state() {
  const ScratchFolder folder;
  SequenceHeader header{.model = 1, .root = 2, .states = {{"k", DType::kF32, 1, 4}}, .rows = {{"s", {DType::kF32, {3, 5}}}}, .tokens = {7}};
  auto file = SequenceFileWriter::create(folder / "a", header);
  REQUIRE(file.ok());
  REQUIRE(file->append(std::vector<std::byte>(60)).ok());
  REQUIRE(file->commit().ok());
  return read_text_file(folder / "a");
}

// Offsets: the fixed part, window_from, the number of row states, then a page state of 24 + 8 + 1 + 3 bytes.
constexpr size_t kRowStates = 56 + 8, kRow = kRowStates + 8 + 24 + 8 + 4, kRank = kRow + 8, kExtents = kRank + 8;

std::string refusal(std::string file, size_t at, uint64_t value) {
  std::memcpy(file.data() + at, &value, sizeof value);
  const uint64_t hash = xxh3(std::as_bytes(std::span(file)).first(file.size() - 8));
  std::memcpy(file.data() + file.size() - 8, &hash, sizeof hash);
  const auto opened = SequenceFileReader::open(source_of(file));
  REQUIRE(!opened.ok());
  CHECK(opened.status().code() == StatusCode::kCorrupt);
  return opened.status().to_string();
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("sequence_files_with_states_are_read_back") {
  const std::string file = file_with_state();
  auto opened = SequenceFileReader::open(source_of(file));
  REQUIRE_MESSAGE(opened.ok(), opened.status().to_string());
  CHECK(opened->header().rows == std::vector<RowState>{{"s", {DType::kF32, {3, 5}}}});
  CHECK(opened->header().state_bytes() == 60);
  std::vector<std::byte> state(60);
  CHECK(opened->read_rows(state).ok());
  CHECK(opened->check().ok());
}

TEST_CASE("sequence_files_with_hostile_states_are_refused") {
  const std::string file = file_with_state();
  constexpr uint64_t kHuge = uint64_t{1} << 60;
  CHECK(has(refusal(file, kRowStates, kHuge), "rows of 1152921504606846976 states"));
  CHECK(has(refusal(file, kRowStates, 0), "rows of 0 states"));
  CHECK(has(refusal(file, kRowStates, 2), "a state"));  // there is no second one
  CHECK(has(refusal(file, kRank, kHuge), "1152921504606846976 dimensions: 1 to 5"));
  CHECK(has(refusal(file, kRank, 0), "0 dimensions"));
  for (const size_t extent : {kExtents, kExtents + 8}) {
    CHECK(has(refusal(file, extent, kHuge), "an extent of 1152921504606846976"));
    CHECK(has(refusal(file, extent, 0), "an extent of 0"));
    CHECK(has(refusal(file, extent, ~uint64_t{0}), "an extent of 18446744073709551615"));
  }
  CHECK(has(refusal(file, kExtents, 4), "the rows of its 1 states do not fit"));
  CHECK(has(refusal(file, kExtents, 30), "it does not fit the file's"));
}
