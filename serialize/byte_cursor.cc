#include "serialize/byte_cursor.h"

#include <algorithm>

#include "graph/base/text.h"

namespace tessera {
namespace {

Status truncated(std::string_view what, int64_t position, uint64_t wanted, int64_t left) {
  return Status(StatusCode::kCorrupt, format("{} at offset {} needs {} bytes, {} are left in the file", what,
                                             position, wanted, left));
}

}  // namespace

Status ByteCursor::read_bytes(std::span<std::byte> out, std::string_view what) {
  const auto size = static_cast<int64_t>(out.size());
  if (size > left()) return truncated(what, position_, out.size(), left());
  if (size == 0) return {};
  constexpr int64_t kWindow = 1 << 16;
  if (size >= kWindow) {
    TSR_RETURN_IF_ERROR(source_.read_at(position_, out));
  } else {
    const bool inside = position_ >= window_begin_ &&
                        position_ + size <= window_begin_ + static_cast<int64_t>(window_.size());
    if (!inside) {
      window_.resize(static_cast<size_t>(std::min(kWindow, left())));
      window_begin_ = position_;
      TSR_RETURN_IF_ERROR(source_.read_at(position_, window_));
    }
    std::memcpy(out.data(), window_.data() + (position_ - window_begin_), out.size());
  }
  position_ += size;
  return {};
}

Result<std::string> ByteCursor::read_text(uint64_t length, std::string_view what) {
  if (length > static_cast<uint64_t>(left())) return truncated(what, position_, length, left());
  std::string text(static_cast<size_t>(length), '\0');
  TSR_RETURN_IF_ERROR(read_bytes(std::as_writable_bytes(std::span<char>(text)), what));
  return text;
}

Status ByteCursor::skip(uint64_t bytes, std::string_view what) {
  if (bytes > static_cast<uint64_t>(left())) return truncated(what, position_, bytes, left());
  position_ += static_cast<int64_t>(bytes);
  return {};
}

}  // namespace tessera
