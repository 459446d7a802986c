// Envelope: the first 64 bytes of all our files: kind, place of the FlatBuffer
// index, sizes of file and index, and their hashes. Integers are little-endian.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "graph/base/result.h"
#include "serialize/model.h"

namespace tessera {

struct Envelope {
  char magic[8];
  uint32_t version;       // readers refuse higher versions
  uint32_t header_bytes;  // 64
  uint64_t file_bytes;
  uint64_t index_offset;  // a multiple of 64
  uint64_t index_bytes;
  uint64_t index_xxh3;
  uint64_t reserved;     // 0
  uint64_t header_xxh3;  // of the 56 bytes before it
};
static_assert(sizeof(Envelope) == 64);

// 2: checkpoints that hold every parameter
inline constexpr uint32_t kFileVersion = 3;
inline constexpr int64_t kDataAlignment = 64;
inline constexpr std::string_view kModelMagic = "TSRMODEL", kCheckpointMagic = "TSRCHKPT";

inline constexpr uint64_t align_data(uint64_t offset) { return (offset + 63) / 64 * 64; }

uint64_t xxh3(std::span<const std::byte> bytes);
Envelope make_envelope(std::string_view magic, uint64_t file_bytes, uint64_t index_offset,
                       std::span<const std::byte> index, uint32_t version = 1);

// IndexBytes: a file's index, aligned for FlatBuffers.
struct IndexBytes {
  std::span<const std::byte> bytes;
  std::shared_ptr<const void> owner;
  uint64_t offset = 0;  // in the file
};

// Checks magic, version, sizes and hashes; allocates only after checking against the file's size.
Result<IndexBytes> read_index(std::shared_ptr<const ByteSource> source, std::string_view magic,
                              std::string_view what);

}  // namespace tessera
