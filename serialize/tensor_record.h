// TensorRecord: one tensor's bytes in a file: place, compression and hash. Shared by model files and
// checkpoint shards.
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

// A reader allocates at most this many bytes per byte of file. Better compressible data are stored raw.
inline constexpr uint64_t kMaxPackingRatio = 1024;

struct TensorRecord {
  std::string name;
  TensorType type;
  uint64_t offset = 0, stored_bytes = 0;
  TensorCodec codec = TensorCodec::kRaw;
  uint64_t xxh3 = 0;             // of the contents
  uint64_t chunk_bytes = 0;      // kZstd: contents of a frame; the last one may hold less
  std::vector<uint64_t> chunks;  // kZstd: stored bytes of each frame
  uint32_t shard = 0;
};

// Appends the tensor at the next aligned position of `file`; compressed only where that helps.
Result<TensorRecord> append_tensor(AtomicFile& file, std::string_view name, const TensorType& type,
                                   std::span<const std::byte> contents, bool compress);

// Checks size against type, codec, alignment, and place inside [begin, end) of the file.
Status check_record(const TensorRecord& record, uint64_t begin, uint64_t end);
// Checks that no two of the same shard overlap, and no name appears twice.
Status check_records(std::span<const TensorRecord> records);

// The contents, in place where they are raw and `source` can be mapped.
TensorSource tensor_source(const std::shared_ptr<const ByteSource>& source, const TensorRecord& record);
// The whole of them. Those in place are read and checked with `verify` only, others always.
Result<HostTensor> read_tensor(const std::shared_ptr<const ByteSource>& source, const TensorRecord& record,
                               bool verify);

}  // namespace tessera
