// FlatBufferReader: reads untrusted FlatBuffers. A verified buffer may
// still refer to one string from a million places, so copied bytes are
// counted and limited to the buffer's size. Internal to serialize/*.cc.
#pragma once

#include <flatbuffers/flatbuffers.h>

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "graph/base/result.h"
#include "graph/base/shape.h"
#include "graph/base/text.h"
#include "serialize/envelope.h"
#include "serialize/schema/common_generated.h"
#include "serialize/tensor_record.h"

namespace tessera {

class FlatBufferReader {
 public:
  explicit FlatBufferReader(const IndexBytes& index) : left_(index.bytes.size()) {}

  // Runs FlatBuffers' verifier with limits on depth and tables; returns the root table.
  template <class Root>
  static Result<const Root*> root(const IndexBytes& index, const char* identifier, std::string_view what) {
    flatbuffers::Verifier::Options options;
    options.max_depth = 16;
    // A table with its reference takes at least 8 bytes; more tables than fit must be shared.
    options.max_tables = static_cast<flatbuffers::uoffset_t>(index.bytes.size() / 8 + 1);
    flatbuffers::Verifier verifier(reinterpret_cast<const uint8_t*>(index.bytes.data()), index.bytes.size(),
                                   options);
    if (!verifier.VerifyBuffer<Root>(identifier)) {
      return Status(StatusCode::kCorrupt, format("{}: its index is no valid FlatBuffer", what));
    }
    return flatbuffers::GetRoot<Root>(index.bytes.data());
  }

  Result<std::string> text(const flatbuffers::String* string) {
    if (string == nullptr) return std::string();
    TSR_RETURN_IF_ERROR(take(string->size()));
    return string->str();
  }

  template <class To, class From>
  Result<std::vector<To>> numbers(const flatbuffers::Vector<From>* vector) {
    std::vector<To> values;
    if (vector == nullptr) return values;
    TSR_RETURN_IF_ERROR(take(uint64_t{vector->size()} * sizeof(From)));
    // The verifier checks the alignment of a vector's length, not of its elements.
    if (vector->size() > 0 && reinterpret_cast<uintptr_t>(vector->Data()) % alignof(From) != 0)
      return Status(StatusCode::kCorrupt, "a list of numbers is not aligned");
    values.reserve(vector->size());
    for (From value : *vector) values.push_back(static_cast<To>(value));
    return values;
  }

  Result<std::vector<std::string>> texts(
      const flatbuffers::Vector<flatbuffers::Offset<flatbuffers::String>>* vector);
  Result<std::map<std::string, std::string>> key_values(
      const flatbuffers::Vector<flatbuffers::Offset<file::KeyValue>>* vector);

  // Extents are counts, or indices below `symbols`. Sizes cannot overflow.
  Result<TensorType> type(const file::TensorType& stored, int64_t symbols);
  Result<TensorRecord> record(const file::TensorData& stored);

  // Call for every table that is kept: counts its minimal size in the buffer.
  Status take_table() { return take(12); }

 private:
  Status take(uint64_t bytes);
  uint64_t left_;
};

// Writes a type.
flatbuffers::Offset<file::TensorType> write_type(flatbuffers::FlatBufferBuilder& builder,
                                                 const TensorType& type);
flatbuffers::Offset<file::TensorData> write_record(flatbuffers::FlatBufferBuilder& builder,
                                                   const TensorRecord& record);
flatbuffers::Offset<flatbuffers::Vector<flatbuffers::Offset<file::KeyValue>>> write_key_values(
    flatbuffers::FlatBufferBuilder& builder, const std::map<std::string, std::string>& values);

inline std::span<const std::byte> finished_bytes(const flatbuffers::FlatBufferBuilder& builder) {
  return std::as_bytes(std::span(builder.GetBufferPointer(), builder.GetSize()));
}

// For loops: an absent vector is an empty one.
template <class T>
size_t size_of(const flatbuffers::Vector<T>* vector) {
  return vector == nullptr ? 0 : vector->size();
}

}  // namespace tessera
