#include "engine/sampling/text_stream.h"

#include <algorithm>

#include "graph/base/utf8.h"

namespace tessera {

TextStream::TextStream(std::vector<std::string> stop) {
  if (!stop.empty()) stops_ = std::make_shared<const StopAutomaton>(std::move(stop));
}

std::string TextStream::add(std::string_view bytes) { return add(bytes, false); }

std::string TextStream::add_hidden(std::string_view bytes) {
  return stops_ ? add(bytes, true) : std::string();
}

std::string TextStream::add(std::string_view bytes, bool hidden) {
  if (stopped_) return {};
  size_t first = std::string::npos;
  for (const char byte : bytes) {
    held_ += byte;
    hidden_.push_back(hidden);
    if (!stops_) continue;
    state_ = stops_->step(state_, static_cast<unsigned char>(byte));
    for (size_t found = stops_->found_bytes(state_); found > 0; found = stops_->found_bytes(state_, found)) {
      const size_t begin = held_.size() - found;
      if (begin >= first || (may_end_ && !may_end_(size() - visible(begin).size()))) continue;
      first = begin;
      break;
    }
  }
  if (first != std::string::npos) {
    stopped_ = true;
    held_.resize(first);
    return finish();
  }
  // A possible stop text is held whole, an incomplete character before it too; hidden bytes are dropped.
  const size_t begun = held_.size() - (stops_ ? stops_->begun_bytes(state_) : 0);
  std::string certain = visible(0);
  const size_t keep = std::max(unfinished_utf8(certain), visible(begun).size());
  certain.resize(certain.size() - keep);
  size_t kept = 0, passed = 0;
  for (size_t i = 0; i < held_.size(); ++i) {
    if (hidden_[i] ? i < begun : passed++ < certain.size()) continue;
    held_[kept] = held_[i];
    hidden_[kept++] = hidden_[i];
  }
  held_.resize(kept);
  hidden_.resize(kept);
  given_ += certain.size();
  return certain;
}

std::string TextStream::finish() {
  state_ = 0;
  std::string rest = visible(0);
  held_.clear();
  hidden_.clear();
  given_ += rest.size();
  return rest;
}

size_t TextStream::size() const { return given_ + visible(0).size(); }

std::string TextStream::visible(size_t begin) const {
  std::string bytes;
  for (size_t i = begin; i < held_.size(); ++i)
    if (!hidden_[i]) bytes += held_[i];
  return bytes;
}

}  // namespace tessera
