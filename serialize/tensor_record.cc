#include "serialize/tensor_record.h"

#include <zstd.h>

#include <algorithm>

#include "graph/base/text.h"
#include "serialize/envelope.h"

namespace tessera {
namespace {

constexpr uint64_t kChunkBytes = uint64_t{1} << 20;
constexpr uint64_t kMaxChunkBytes = uint64_t{1} << 26;
constexpr int kCompressionLevel = 3;
// A reader allocates at most this many bytes per byte of file. Better compressible data are stored raw.
constexpr uint64_t kMaxRatio = 1024;

Status corrupt(const TensorRecord& record, const std::string& why) {
  return Status(StatusCode::kCorrupt, format("tensor '{}': {}", record.name, why));
}

// Consecutive frames of all chunks; empty when compression does not pay.
std::vector<std::byte> compress_chunks(std::span<const std::byte> contents, std::vector<uint64_t>& sizes) {
  std::vector<std::byte> frames, frame(ZSTD_compressBound(kChunkBytes));
  for (size_t begin = 0; begin < contents.size(); begin += kChunkBytes) {
    const auto chunk = contents.subspan(begin, std::min<size_t>(kChunkBytes, contents.size() - begin));
    const size_t size =
        ZSTD_compress(frame.data(), frame.size(), chunk.data(), chunk.size(), kCompressionLevel);
    if (ZSTD_isError(size)) return {};
    frames.insert(frames.end(), frame.begin(), frame.begin() + static_cast<ptrdiff_t>(size));
    sizes.push_back(size);
  }
  if (frames.size() >= contents.size() || contents.size() / kMaxRatio >= frames.size()) return {};
  return frames;
}

Result<HostTensor> unpack(const std::shared_ptr<const ByteSource>& source, const TensorRecord& record) {
  std::span<std::byte> contents;
  HostTensor tensor = HostTensor::zeros(record.type, &contents);
  std::vector<std::byte> frame;
  uint64_t offset = record.offset, position = 0;
  for (uint64_t size : record.chunks) {
    frame.resize(size);
    TSR_RETURN_IF_ERROR(source->read_at(static_cast<int64_t>(offset), frame));
    const uint64_t wanted = std::min<uint64_t>(record.chunk_bytes, contents.size() - position);
    const size_t got = ZSTD_decompress(contents.data() + position, wanted, frame.data(), frame.size());
    if (ZSTD_isError(got) || got != wanted) {
      return corrupt(record, format("chunk at {} does not unpack to {} bytes: {}", offset, wanted,
                                    ZSTD_isError(got) ? ZSTD_getErrorName(got) : "wrong size"));
    }
    offset += size;
    position += wanted;
  }
  return tensor;
}

}  // namespace

Result<TensorRecord> append_tensor(AtomicFile& file, std::string_view name, const TensorType& type,
                                   std::span<const std::byte> contents, bool compress) {
  if (!type.shape.is_concrete() || static_cast<int64_t>(contents.size()) != bytes(type)) {
    return Status(StatusCode::kInvalidArgument,
                  format("tensor '{}' is {} with {} bytes of data", name, type, contents.size()));
  }
  TensorRecord record;
  record.name = name;
  record.type = type;
  record.xxh3 = xxh3(contents);
  TSR_RETURN_IF_ERROR(file.pad_to(align_data(file.position())));
  record.offset = file.position();
  std::vector<std::byte> frames;
  if (compress) frames = compress_chunks(contents, record.chunks);
  if (frames.empty()) {
    record.chunks.clear();
  } else {
    record.codec = TensorCodec::kZstd;
    record.chunk_bytes = kChunkBytes;
    contents = frames;
  }
  record.stored_bytes = contents.size();
  TSR_RETURN_IF_ERROR(file.append(contents));
  return record;
}

Status check_record(const TensorRecord& record, uint64_t begin, uint64_t end) {
  if (record.offset % kDataAlignment != 0) {
    return corrupt(record, format("starts at {}, which is no multiple of {}", record.offset, kDataAlignment));
  }
  if (record.offset < begin || record.offset > end || record.stored_bytes > end - record.offset) {
    return corrupt(record, format("{} bytes at {} are outside the file's data, {} to {}", record.stored_bytes,
                                  record.offset, begin, end));
  }
  const auto contents = static_cast<uint64_t>(bytes(record.type));
  if (record.codec == TensorCodec::kRaw) {
    if (record.stored_bytes != contents || !record.chunks.empty()) {
      return corrupt(record,
                     format("{} needs {} bytes, {} are stored", record.type, contents, record.stored_bytes));
    }
    return {};
  }
  if (record.codec != TensorCodec::kZstd) {
    return Status(StatusCode::kUnsupported, format("tensor '{}' is packed with codec {}; 0 and 1 are known",
                                                   record.name, static_cast<int>(record.codec)));
  }
  if (record.chunk_bytes == 0 || record.chunk_bytes > kMaxChunkBytes ||
      contents / kMaxRatio >= record.stored_bytes ||
      record.chunks.size() != contents / record.chunk_bytes + (contents % record.chunk_bytes != 0)) {
    return corrupt(record, format("{} bytes cannot be {} chunks of {} in {} bytes", contents,
                                  record.chunks.size(), record.chunk_bytes, record.stored_bytes));
  }
  uint64_t left = record.stored_bytes;
  for (uint64_t size : record.chunks) {
    if (size > left) return corrupt(record, "its chunks are longer than its data");
    left -= size;
  }
  return left == 0 ? Status() : corrupt(record, "its chunks are shorter than its data");
}

Status check_records(std::span<const TensorRecord> records) {
  std::vector<const TensorRecord*> sorted;
  for (const TensorRecord& record : records) sorted.push_back(&record);
  std::ranges::sort(sorted, {}, [](const TensorRecord* record) { return std::string_view(record->name); });
  for (size_t i = 1; i < sorted.size(); ++i) {
    if (sorted[i - 1]->name == sorted[i]->name) return corrupt(*sorted[i], "appears twice");
  }
  std::ranges::sort(sorted, [](const TensorRecord* a, const TensorRecord* b) {
    return std::tuple(a->shard, a->offset, a->stored_bytes) <
           std::tuple(b->shard, b->offset, b->stored_bytes);
  });
  for (size_t i = 1; i < sorted.size(); ++i) {
    const TensorRecord &before = *sorted[i - 1], &after = *sorted[i];
    if (before.shard == after.shard && before.offset + before.stored_bytes > after.offset) {
      return corrupt(after, format("overlaps tensor '{}'", before.name));
    }
  }
  return {};
}

Result<HostTensor> read_tensor(const std::shared_ptr<const ByteSource>& source, const TensorRecord& record,
                               bool verify) {
  HostTensor tensor;
  if (record.codec == TensorCodec::kZstd) {
    TSR_ASSIGN_OR_RETURN(tensor, unpack(source, record));
    verify = true;  // every byte has passed by anyway
  } else {
    const auto offset = static_cast<int64_t>(record.offset), size = static_cast<int64_t>(record.stored_bytes);
    tensor = HostTensor{record.type, verify ? std::span<const std::byte>() : source->map(offset, size), source};
    const bool aligned = reinterpret_cast<uintptr_t>(tensor.data.data()) % alignof(double) == 0;
    if (tensor.data.size() != record.stored_bytes || !aligned) {
      std::span<std::byte> contents;
      tensor = HostTensor::zeros(record.type, &contents);
      TSR_RETURN_IF_ERROR(source->read_at(offset, contents));
    }
  }
  if (verify && xxh3(tensor.data) != record.xxh3)
    return corrupt(record, "its checksum is wrong: the data is damaged");
  return tensor;
}

}  // namespace tessera
