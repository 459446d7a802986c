// Tensors read and written slice by slice: any unit, any failure on the way, and the same bytes as at once.
#include "serialize/tensor_source.h"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "serialize/atomic_file.h"
#include "serialize/envelope.h"
#include "serialize/tensor_record.h"
#include "serialize/tensor_writer.h"
#include "tests/serialize/test_data.h"

using namespace tessera;
using tessera::testing::ScratchFolder;

namespace {

// `noisy`: packs badly; else well, but not too well to be kept packed.
std::vector<std::byte> some_bytes(size_t count, bool noisy) {
  std::vector<std::byte> bytes(count);
  uint32_t state = 7;
  for (std::byte& byte : bytes) {
    state = state * 1664525u + 1013904223u;
    byte = static_cast<std::byte>(noisy ? state >> 24 : state >> 31);
  }
  return bytes;
}

// Reads whole units only, as a decoder does.
TensorSource in_units(const std::vector<std::byte>& bytes, int64_t unit) {
  TensorSource source{"t", {DType::kU8, {static_cast<int64_t>(bytes.size())}}, {}, unit, {}, {}};
  source.read = [&bytes, unit](int64_t offset,
                               std::span<std::byte> buffer) -> Result<std::span<const std::byte>> {
    CHECK(offset % unit == 0);
    const auto begin = bytes.begin() + static_cast<std::ptrdiff_t>(offset);
    const auto end = begin + static_cast<std::ptrdiff_t>(buffer.size());
    CHECK((end == bytes.end() || (end - bytes.begin()) % unit == 0));
    std::copy(begin, end, buffer.begin());
    return std::span<const std::byte>(buffer);
  };
  return source;
}

}  // namespace

TEST_CASE("a tensor is written in slices of whole units and read back, packed or not") {
  const ScratchFolder folder;
  for (const bool noisy : {false, true})
    for (const size_t count : {size_t{0}, size_t{5}, size_t{1} << 20, (size_t{5} << 20) + 77})
      for (const int64_t unit : {int64_t{1}, int64_t{18}, int64_t{3} << 20})
        for (const bool compress : {false, true}) {
          const std::vector<std::byte> bytes = some_bytes(count, noisy);
          auto file = AtomicFile::create(folder / "f");
          REQUIRE(file.ok());
          REQUIRE(file->append(std::as_bytes(std::span("head"))).ok());
          TensorWriter writer(*file, in_units(bytes, unit), compress);
          int slices = 0;
          for (; !writer.is_done(); ++slices) REQUIRE(writer.write_slice().ok());
          const TensorRecord& record = writer.record();
          CHECK(record.codec == (compress && !noisy && count > 5 ? TensorCodec::kZstd : TensorCodec::kRaw));
          CHECK(record.offset == 64);
          CHECK(record.xxh3 == xxh3(bytes));
          REQUIRE(check_record(record, 64, file->position()).ok());
          REQUIRE(file->commit().ok());
          auto source = open_file(folder / "f");
          REQUIRE(source.ok());
          CHECK((*source)->size() == static_cast<int64_t>(64 + record.stored_bytes));
          for (const bool verify : {false, true}) {
            auto read = read_tensor(*source, record, verify);
            REQUIRE_MESSAGE(read.ok(), read.status().to_string());
            CHECK(std::ranges::equal(read->data, bytes));
          }
        }
}

TEST_CASE("a slice that fails is read again, and other contents than were promised are found at the end") {
  const std::vector<std::byte> bytes = some_bytes(3 << 20, true);
  int failures = 2;
  TensorSource source = in_units(bytes, 1);
  source.read = [read = source.read, &failures](
                    int64_t offset, std::span<std::byte> buffer) -> Result<std::span<const std::byte>> {
    if (offset > 0 && failures-- > 0) return Status(StatusCode::kIo, "the cable is loose");
    return read(offset, buffer);
  };
  source.xxh3 = xxh3(bytes);
  std::vector<std::byte> buffer(1 << 20);
  TensorReader reader(source, false);
  int failed = 0;
  while (!reader.is_done()) failed += !reader.next(buffer).ok();
  CHECK(failed == 2);

  source.xxh3 = xxh3(bytes) + 1;
  const Status wrong = read_whole(source).status();
  CHECK(wrong.code() == StatusCode::kCorrupt);
  CHECK(wrong.message() == "tensor 't': its checksum is wrong: the data is damaged");
  source.in_place = HostTensor{source.type, bytes, nullptr};
  CHECK(read_whole(source).ok());  // unread
}
