// ByteCursor: reads little-endian values from an untrusted ByteSource. Every read is checked against
// the remaining bytes, so a length in the file never causes an allocation larger than the file.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "graph/base/result.h"
#include "serialize/model.h"

namespace tessera {

static_assert(std::endian::native == std::endian::little, "files are little-endian and read as they lie");

class ByteCursor {
 public:
  explicit ByteCursor(const ByteSource& source, int64_t position = 0)
      : source_(source), position_(position) {}

  int64_t position() const { return position_; }
  int64_t left() const { return source_.size() - position_; }

  template <class T>
  Result<T> read(std::string_view what) {
    T value;
    TSR_RETURN_IF_ERROR(read_bytes(std::as_writable_bytes(std::span<T, 1>(&value, 1)), what));
    return value;
  }
  Result<std::string> read_text(uint64_t length, std::string_view what);
  Status skip(uint64_t bytes, std::string_view what);

 private:
  Status read_bytes(std::span<std::byte> out, std::string_view what);

  const ByteSource& source_;
  int64_t position_;
  std::vector<std::byte> window_;  // read-ahead buffer; a mapping of a truncated file would kill the process
  int64_t window_begin_ = 0;
};

}  // namespace tessera
