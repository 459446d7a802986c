#include "capi/engine/text_stream.h"

#include <algorithm>

namespace tessera {
namespace {

// Bytes at the end of `text` that begin a UTF-8 character but do not complete it: 0 to 3.
size_t unfinished_bytes(std::string_view text) {
  for (size_t back = 1; back <= std::min<size_t>(3, text.size()); ++back) {
    const auto byte = static_cast<unsigned char>(text[text.size() - back]);
    if ((byte & 0xc0) == 0x80) continue;  // a continuation: its start is further back
    const size_t length = byte >= 0xf0 && byte < 0xf8 ? 4 : byte >= 0xe0 ? 3 : byte >= 0xc0 ? 2 : 1;
    return byte < 0xf8 && length > back ? back : 0;
  }
  return 0;
}

// Bytes at the end of `text` that are a proper prefix of `stop`.
size_t begun_bytes(std::string_view text, std::string_view stop) {
  for (size_t length = std::min(text.size(), stop.size() - 1); length > 0; --length)
    if (text.ends_with(stop.substr(0, length))) return length;
  return 0;
}

}  // namespace

std::string TextStream::add(std::string_view bytes) {
  if (stopped_) return {};
  held_ += bytes;
  size_t first = std::string::npos;
  for (const std::string& stop : stop_) first = std::min(first, held_.find(stop));
  if (first != std::string::npos) {
    stopped_ = true;
    held_.resize(first);
    return finish();
  }
  size_t keep = unfinished_bytes(held_);
  for (const std::string& stop : stop_) keep = std::max(keep, begun_bytes(held_, stop));
  std::string certain = held_.substr(0, held_.size() - keep);
  held_.erase(0, certain.size());
  return certain;
}

std::string TextStream::finish() {
  std::string rest;
  rest.swap(held_);
  return rest;
}

}  // namespace tessera
