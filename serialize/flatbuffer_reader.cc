#include "serialize/flatbuffer_reader.h"

#include <algorithm>

#include "graph/limits.h"

namespace tessera {

Status FlatBufferReader::take(uint64_t bytes) {
  if (bytes > left_)
    return Status(StatusCode::kCorrupt, "the index unfolds to more than its size: parts of it are shared");
  left_ -= bytes;
  return {};
}

Result<std::vector<std::string>> FlatBufferReader::texts(
    const flatbuffers::Vector<flatbuffers::Offset<flatbuffers::String>>* vector) {
  std::vector<std::string> values;
  TSR_RETURN_IF_ERROR(take(uint64_t{size_of(vector)} * sizeof(flatbuffers::uoffset_t)));
  values.reserve(size_of(vector));
  for (size_t i = 0; i < size_of(vector); ++i) {
    TSR_ASSIGN_OR_RETURN(std::string value, text(vector->Get(static_cast<flatbuffers::uoffset_t>(i))));
    values.push_back(std::move(value));
  }
  return values;
}

Result<std::map<std::string, std::string>> FlatBufferReader::key_values(
    const flatbuffers::Vector<flatbuffers::Offset<file::KeyValue>>* vector) {
  std::map<std::string, std::string> values;
  for (size_t i = 0; i < size_of(vector); ++i) {
    const file::KeyValue& entry = *vector->Get(static_cast<flatbuffers::uoffset_t>(i));
    TSR_RETURN_IF_ERROR(take_table());
    TSR_ASSIGN_OR_RETURN(std::string key, text(entry.key()));
    TSR_ASSIGN_OR_RETURN(std::string value, text(entry.value()));
    if (!values.emplace(key, std::move(value)).second) {
      return Status(StatusCode::kCorrupt, format("metadata '{}' appears twice", key));
    }
  }
  return values;
}

Result<TensorType> FlatBufferReader::type(const file::TensorType& stored, int64_t symbols) {
  TensorType type;
  if (stored.dtype() >= kDTypeCount) {
    return Status(StatusCode::kCorrupt,
                  format("dtype {}; this version knows 0 to {}", stored.dtype(), kDTypeCount - 1));
  }
  type.dtype = static_cast<DType>(stored.dtype());
  if (size_of(stored.extents()) > kMaxRank) {
    return Status(StatusCode::kCorrupt,
                  format("a shape has {} dims, at most {}", size_of(stored.extents()), kMaxRank));
  }
  TSR_ASSIGN_OR_RETURN(std::vector<int64_t> extents, numbers<int64_t>(stored.extents()));
  int64_t elements = 1;
  for (int64_t extent : extents) {
    if (extent < -symbols) {
      return Status(StatusCode::kCorrupt,
                    format("a shape uses symbol {}, there are {}", -1 - extent, symbols));
    }
    if (extent > 0 && (__builtin_mul_overflow(elements, extent, &elements) || elements > kMaxTensorElements)) {
      return Status(StatusCode::kCorrupt, "a shape has more elements than any memory");
    }
    type.shape.push_back(extent);
  }
  const int32_t block = info(type.dtype).block_elements;
  if (block > 1 && (extents.empty() || extents.back() < 0 || extents.back() % block != 0)) {
    return Status(StatusCode::kCorrupt, format("{}: rows are not whole blocks of {}", type, block));
  }
  return type;
}

Result<TensorRecord> FlatBufferReader::record(const file::TensorData& stored) {
  TSR_RETURN_IF_ERROR(take_table());
  TensorRecord record;
  TSR_ASSIGN_OR_RETURN(record.name, text(stored.name()));
  TSR_ASSIGN_OR_RETURN(record.type, type(*stored.type(), 0));
  record.offset = stored.offset();
  record.stored_bytes = stored.stored_bytes();
  record.codec = static_cast<TensorCodec>(stored.codec());
  record.xxh3 = stored.xxh3();
  record.chunk_bytes = stored.chunk_bytes();
  TSR_ASSIGN_OR_RETURN(record.chunks, numbers<uint64_t>(stored.chunks()));
  record.shard = stored.shard();
  return record;
}

flatbuffers::Offset<file::TensorType> write_type(flatbuffers::FlatBufferBuilder& builder,
                                                 const TensorType& type) {
  const std::vector<int64_t> extents(type.shape.dims().begin(), type.shape.dims().end());
  return file::CreateTensorType(builder, static_cast<uint8_t>(type.dtype), builder.CreateVector(extents));
}

flatbuffers::Offset<file::TensorData> write_record(flatbuffers::FlatBufferBuilder& builder,
                                                   const TensorRecord& record) {
  auto name = builder.CreateString(record.name);
  auto type = write_type(builder, record.type);
  auto chunks = record.chunks.empty() ? 0 : builder.CreateVector(record.chunks);
  return file::CreateTensorData(builder, name, type, record.offset, record.stored_bytes,
                                static_cast<uint8_t>(record.codec), record.xxh3, record.chunk_bytes, chunks,
                                record.shard);
}

flatbuffers::Offset<flatbuffers::Vector<flatbuffers::Offset<file::KeyValue>>> write_key_values(
    flatbuffers::FlatBufferBuilder& builder, const std::map<std::string, std::string>& values) {
  std::vector<flatbuffers::Offset<file::KeyValue>> entries;
  for (const auto& [key, value] : values) {
    auto stored_key = builder.CreateString(key);
    entries.push_back(file::CreateKeyValue(builder, stored_key, builder.CreateString(value)));
  }
  return builder.CreateVector(entries);
}

}  // namespace tessera
