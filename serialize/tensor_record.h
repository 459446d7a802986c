// TensorRecord: one tensor's bytes in a file: place, compression
// and hash. Shared by model files and checkpoint shards.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "graph/base/result.h"
#include "graph/base/shape.h"
#include "graph/host_tensor.h"
#include "serialize/atomic_file.h"
#include "serialize/model.h"
#include "serialize/tensor_source.h"

namespace tessera {

// Stored in files: append, never renumber.
enum class TensorCodec : uint8_t { kRaw = 0, kZstd = 1 };

// Readers allocate at most this many bytes per byte of file; better compressible data is stored raw.
inline constexpr uint64_t kMaxPackingRatio = 1024;

struct TensorRecord {
  std::string name;
  TensorType type;
  uint64_t offset = 0, stored_bytes = 0;
  TensorCodec codec = TensorCodec::kRaw;
  uint64_t xxh3 = 0;             // of the contents
  uint64_t chunk_bytes = 0;      // kZstd: uncompressed bytes per frame; the last may be shorter
  std::vector<uint64_t> chunks;  // kZstd: compressed bytes of each frame
  uint32_t shard = 0;
};

// Appends the tensor at the next aligned position of `file`, compressed only if that helps.
Result<TensorRecord> append_tensor(AtomicFile& file, std::string_view name, const TensorType& type,
                                   std::span<const std::byte> contents, bool compress);

// Checks size against type, codec, alignment, and place inside [begin, end) of the file.
Status check_record(const TensorRecord& record, uint64_t begin, uint64_t end);
// Checks that no two of the same shard overlap, and no name appears twice.
Status check_records(std::span<const TensorRecord> records);

// The contents, in place if raw and mappable.
TensorSource tensor_source(const std::shared_ptr<const ByteSource>& source, const TensorRecord& record);
// Reads the whole contents. Those in place are hashed only with `verify`.
Result<HostTensor> read_tensor(const std::shared_ptr<const ByteSource>& source, const TensorRecord& record,
                               bool verify);

}  // namespace tessera
