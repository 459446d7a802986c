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

}  // namespace

TextStream::TextStream(std::vector<std::string> stop) {
  if (!stop.empty()) stops_ = std::make_shared<const StopAutomaton>(std::move(stop));
}

std::string TextStream::add(std::string_view bytes) {
  if (stopped_) return {};
  size_t first = std::string::npos;
  for (const char byte : bytes) {
    held_ += byte;
    if (!stops_) continue;
    state_ = stops_->step(state_, static_cast<unsigned char>(byte));
    if (const size_t found = stops_->found_bytes(state_); found > 0)
      first = std::min(first, held_.size() - found);
  }
  if (first != std::string::npos) {
    stopped_ = true;
    held_.resize(first);
    return finish();
  }
  const size_t keep = std::max(unfinished_bytes(held_), stops_ ? stops_->begun_bytes(state_) : 0);
  std::string certain = held_.substr(0, held_.size() - keep);
  held_.erase(0, certain.size());
  return certain;
}

std::string TextStream::finish() {
  state_ = 0;
  std::string rest;
  rest.swap(held_);
  return rest;
}

}  // namespace tessera
