#include "serialize/tensor_record.h"

#include <zstd.h>

#include <algorithm>
#include <utility>

#include "graph/base/text.h"
#include "serialize/envelope.h"
#include "serialize/tensor_writer.h"

namespace tessera {
namespace {

constexpr uint64_t kMaxChunkBytes = uint64_t{1} << 26;

Status corrupt(const TensorRecord& record, const std::string& why) {
  return Status(StatusCode::kCorrupt, format("tensor '{}': {}", record.name, why));
}

// ChunkReader: contents of compressed tensors, by whole chunks.
struct ChunkReader {
  std::shared_ptr<const ByteSource> source;
  TensorRecord record;
  std::vector<uint64_t> offsets;  // file offsets of all chunks

  ChunkReader(std::shared_ptr<const ByteSource> from, const TensorRecord& tensor)
      : source(std::move(from)), record(tensor) {
    uint64_t offset = record.offset;
    for (const uint64_t size : record.chunks) offsets.push_back(std::exchange(offset, offset + size));
  }

  Result<std::span<const std::byte>> read(int64_t begin, std::span<std::byte> out) const {
    std::vector<std::byte> frame;
    size_t chunk = static_cast<size_t>(begin) / record.chunk_bytes;
    for (size_t position = 0; position < out.size(); ++chunk) {
      const size_t wanted = std::min<size_t>(record.chunk_bytes, out.size() - position);
      if (record.chunks[chunk] > ZSTD_compressBound(wanted))
        return corrupt(record, format("its chunk of {} bytes is packed in {}", wanted, record.chunks[chunk]));
      frame.resize(record.chunks[chunk]);
      TSR_RETURN_IF_ERROR(source->read_at(static_cast<int64_t>(offsets[chunk]), frame));
      const size_t got = ZSTD_decompress(out.data() + position, wanted, frame.data(), frame.size());
      if (ZSTD_isError(got) || got != wanted) {
        return corrupt(record, format("chunk at {} does not unpack to {} bytes: {}", offsets[chunk], wanted,
                                      ZSTD_isError(got) ? ZSTD_getErrorName(got) : "wrong size"));
      }
      position += wanted;
    }
    return std::span<const std::byte>(out);
  }
};

}  // namespace

Result<TensorRecord> append_tensor(AtomicFile& file, std::string_view name, const TensorType& type,
                                   std::span<const std::byte> contents, bool compress) {
  if (!type.shape.is_concrete() || static_cast<int64_t>(contents.size()) != bytes(type)) {
    return Status(StatusCode::kInvalidArgument,
                  format("tensor '{}' is {} with {} bytes of data", name, type, contents.size()));
  }
  TensorWriter writer(file, source_in_memory(std::string(name), {type, contents, nullptr}), compress);
  while (!writer.is_done()) TSR_RETURN_IF_ERROR(writer.write_slice());
  return writer.record();
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
      contents / kMaxPackingRatio >= record.stored_bytes ||
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

TensorSource tensor_source(const std::shared_ptr<const ByteSource>& source, const TensorRecord& record) {
  TensorSource tensor{record.name, record.type, {}, 1, record.xxh3, {}};
  if (record.codec == TensorCodec::kZstd) {
    tensor.unit_bytes = static_cast<int64_t>(record.chunk_bytes);
    tensor.read = [chunks = std::make_shared<const ChunkReader>(source, record)](
                      int64_t begin, std::span<std::byte> buffer) { return chunks->read(begin, buffer); };
    return tensor;
  }
  const auto offset = static_cast<int64_t>(record.offset), size = static_cast<int64_t>(record.stored_bytes);
  const std::span<const std::byte> mapped = source->map(offset, size);
  const bool aligned = reinterpret_cast<uintptr_t>(mapped.data()) % alignof(double) == 0;
  if (mapped.size() == record.stored_bytes && aligned)
    tensor.in_place = HostTensor{record.type, mapped, source};
  tensor.read = [source, offset](int64_t begin,
                                 std::span<std::byte> buffer) -> Result<std::span<const std::byte>> {
    TSR_RETURN_IF_ERROR(source->read_at(offset + begin, buffer));
    return std::span<const std::byte>(buffer);
  };
  return tensor;
}

Result<HostTensor> read_tensor(const std::shared_ptr<const ByteSource>& source, const TensorRecord& record,
                               bool verify) {
  TensorSource tensor = tensor_source(source, record);
  if (verify) tensor.in_place = {};
  return read_whole(tensor);
}

}  // namespace tessera
