#include "text/jinja/text.h"

#include <algorithm>

#include "graph/base/utf8.h"

namespace tessera::jinja {
namespace {

constexpr std::string_view kReplacement = "\xef\xbf\xbd";  // U+FFFD

bool is_continuation(char byte) { return (static_cast<unsigned char>(byte) & 0xc0) == 0x80; }

}  // namespace

std::string valid_utf8(std::string_view bytes) {
  std::string valid;
  valid.reserve(bytes.size());
  for (size_t at = 0; at < bytes.size();) {
    const Utf8Part part = utf8_part(bytes, at);
    valid += part.is_character ? bytes.substr(at, part.size) : kReplacement;
    at += part.size;
  }
  return valid;
}

int64_t count_code_points(std::string_view bytes) {
  // Sums blocks of bytes in one byte each, which compilers vectorise.
  constexpr size_t kBlock = 192;
  int64_t count = 0;
  for (size_t begin = 0; begin < bytes.size(); begin += kBlock) {
    uint8_t sum = 0;
    for (const char byte : bytes.substr(begin, kBlock)) sum += static_cast<uint8_t>(!is_continuation(byte));
    count += sum;
  }
  return count;
}

uint32_t code_point_at(std::string_view bytes, size_t at, size_t& size) {
  const auto byte = [&](size_t i) {
    return static_cast<uint32_t>(static_cast<unsigned char>(bytes[at + i]));
  };
  const uint32_t lead = byte(0);
  size = lead < 0x80 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
  uint32_t code = size == 1 ? lead : lead & (0x7fu >> size);
  for (size_t i = 1; i < size; ++i) code = code << 6 | (byte(i) & 0x3f);
  return code;
}

void append_utf8(std::string& out, uint32_t code) {
  const auto tail = [&](int shift) { out += static_cast<char>(0x80 | (code >> shift & 0x3f)); };
  if (code < 0x80) {
    out += static_cast<char>(code);
  } else if (code < 0x800) {
    out += static_cast<char>(0xc0 | code >> 6);
    tail(0);
  } else if (code < 0x10000) {
    out += static_cast<char>(0xe0 | code >> 12);
    tail(6), tail(0);
  } else {
    out += static_cast<char>(0xf0 | code >> 18);
    tail(12), tail(6), tail(0);
  }
}

bool is_space(uint32_t code) {
  return (code >= 9 && code <= 13) || (code >= 28 && code <= 32) || code == 0x85 || code == 0xa0 ||
         code == 0x1680 || (code >= 0x2000 && code <= 0x200a) || code == 0x2028 || code == 0x2029 ||
         code == 0x202f || code == 0x205f || code == 0x3000;
}

Text Text::of(std::string_view bytes, Source source) {
  Text text;
  if (bytes.empty()) return text;
  auto rep = std::make_shared<Rep>();
  rep->bytes = valid_utf8(bytes);
  rep->runs = {Run{rep->bytes.size(), Origin{source, false}}};
  rep->code_points = count_code_points(rep->bytes);
  rep->source = source;
  text.rep_ = std::move(rep);
  return text;
}

const std::vector<Run>& Text::runs() const {
  static const std::vector<Run> none;
  return rep_ ? rep_->runs : none;
}

size_t Text::byte_of(int64_t index) const {
  if (is_ascii()) return static_cast<size_t>(index);
  const std::string_view all = bytes();
  size_t at = 0;
  for (; index > 0; --index) do
      ++at;
    while (at < all.size() && is_continuation(all[at]));
  return at;
}

int64_t Text::index_of_byte(size_t byte) const {
  return is_ascii() ? static_cast<int64_t>(byte) : count_code_points(bytes().substr(0, byte));
}

Status TextBuilder::reserve(size_t more) {
  TSR_RETURN_IF_ERROR(budget_.spend_bytes(more + more / 4));  // for copying, and counting characters
  const size_t needed = bytes_.size() + more + (runs_.size() + 1) * sizeof(Run);
  if (needed <= static_cast<size_t>(lease_.bytes())) return {};
  TSR_ASSIGN_OR_RETURN(Lease lease,
                       budget_.lease(needed + needed / 2 + 64 - static_cast<size_t>(lease_.bytes())));
  lease_.add(std::move(lease));
  return {};
}

void TextBuilder::add_run(Origin origin) {
  if (!runs_.empty() && runs_.back().origin == origin)
    runs_.back().end = bytes_.size();
  else
    runs_.push_back(Run{bytes_.size(), origin});
}

Status TextBuilder::add(std::string_view bytes, Origin origin) {
  if (bytes.empty()) return {};
  TSR_RETURN_IF_ERROR(reserve(bytes.size()));
  bytes_ += bytes;
  add_run(origin);
  return {};
}

Status TextBuilder::add(const Text& text, size_t begin, size_t end) {
  const std::vector<Run>& runs = text.runs();
  auto run = std::ranges::upper_bound(runs, begin, {}, &Run::end);
  for (size_t at = begin; at < end; ++run) {
    const size_t stop = std::min(end, run->end);
    TSR_RETURN_IF_ERROR(add(text.bytes().substr(at, stop - at), run->origin));
    at = stop;
  }
  return {};
}

void TextBuilder::mark_generation() {
  std::vector<Run> marked;
  for (Run run : runs_) {
    run.origin.generation = true;
    if (!marked.empty() && marked.back().origin == run.origin)
      marked.back().end = run.end;
    else
      marked.push_back(run);
  }
  runs_ = std::move(marked);
}

Result<Text> TextBuilder::finish() {
  Text text;
  if (!bytes_.empty()) {
    auto rep = std::make_shared<Text::Rep>();
    rep->code_points = count_code_points(bytes_);
    rep->bytes = std::move(bytes_);
    rep->runs = std::move(runs_);
    for (const Run& run : rep->runs) rep->source = join_sources(rep->source, run.origin.source);
    rep->lease = std::move(lease_);
    text.rep_ = std::move(rep);
  }
  bytes_.clear();
  runs_.clear();
  return text;
}

Result<Text> slice(Budget& budget, const Text& text, size_t begin, size_t end) {
  if (begin == 0 && end == text.size()) return text;
  TSR_RETURN_IF_ERROR(budget.spend_allocations(begin < end ? 1 : 0));
  TextBuilder builder(budget);
  TSR_RETURN_IF_ERROR(builder.add(text, begin, end));
  return builder.finish();
}

}  // namespace tessera::jinja
