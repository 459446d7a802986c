#include "runtime/message.h"

#include <cstring>
#include <span>

namespace tessera {

namespace {

Status strange() { return Status(StatusCode::kInternal, "another process sends what this one does not know: start all with the same library"); }

}  // namespace

void MessageWriter::put(int64_t number) { text_.append(reinterpret_cast<const char*>(&number), sizeof number); }

void MessageWriter::put(std::string_view text) {
  put(std::ssize(text));
  text_ += text;
}

void MessageWriter::put(const TensorType& type) {
  put(static_cast<int64_t>(type.dtype));
  put(int64_t{type.shape.rank()});
  for (const int64_t extent : type.shape.dims()) put(extent);
}

void MessageWriter::put(const HostTensor& tensor) {
  put(tensor.type);
  put(std::string_view(reinterpret_cast<const char*>(tensor.data.data()), tensor.data.size()));
}

Result<int64_t> MessageReader::number() {
  int64_t number = 0;
  if (rest_.size() < sizeof number) return strange();
  std::memcpy(&number, rest_.data(), sizeof number);
  rest_.remove_prefix(sizeof number);
  return number;
}

Result<std::string_view> MessageReader::text() {
  TSR_ASSIGN_OR_RETURN(const int64_t size, number());
  if (size < 0 || static_cast<uint64_t>(size) > rest_.size()) return strange();
  const std::string_view text = rest_.substr(0, static_cast<size_t>(size));
  rest_.remove_prefix(text.size());
  return text;
}

Result<TensorType> MessageReader::type() {
  TensorType type;
  TSR_ASSIGN_OR_RETURN(const int64_t dtype, number());
  TSR_ASSIGN_OR_RETURN(const int64_t rank, number());
  if (dtype < 0 || dtype > UINT8_MAX || rank < 0 || rank > kMaxRank) return strange();
  type.dtype = static_cast<DType>(dtype);
  for (int64_t i = 0; i < rank; ++i) {
    TSR_ASSIGN_OR_RETURN(const int64_t extent, number());
    type.shape.push_back(extent);
  }
  return type;
}

Result<HostTensor> MessageReader::tensor() {
  HostTensor tensor;
  TSR_ASSIGN_OR_RETURN(tensor.type, type());
  TSR_ASSIGN_OR_RETURN(const std::string_view bytes, text());
  tensor.data = std::as_bytes(std::span(bytes));
  return tensor;
}

}  // namespace tessera
