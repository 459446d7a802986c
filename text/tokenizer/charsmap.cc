#include "text/tokenizer/charsmap.h"

#include <algorithm>
#include <cstring>

#include "graph/base/text.h"

namespace tessera {
namespace {

constexpr size_t kLongestEntry = 1024;  // bytes; bound for untrusted tables

}  // namespace

Result<std::shared_ptr<const Charsmap>> Charsmap::create(std::string_view bytes) {
  uint32_t size = 0;
  if (bytes.size() >= sizeof size) std::memcpy(&size, bytes.data(), sizeof size);
  if (bytes.size() < sizeof size || size % 4 != 0 || size > bytes.size() - sizeof size)
    return Status(
        StatusCode::kInvalidArgument,
        format("precompiled_charsmap has {} bytes and a table of {}: they do not fit", bytes.size(), size));
  auto made = std::make_shared<Charsmap>();
  made->units_.resize(size / 4);
  if (size > 0) std::memcpy(made->units_.data(), bytes.data() + sizeof size, size);
  made->replacements_ = bytes.substr(sizeof size + size);
  return std::shared_ptr<const Charsmap>(std::move(made));
}

template <class Use>
bool Charsmap::for_each_prefix(std::string_view text, Use&& use) const {
  if (units_.empty()) return false;
  size_t at = offset(units_[0]);
  for (size_t end = 0; end < std::min(text.size(), kLongestEntry); ++end) {
    const auto byte = static_cast<uint8_t>(text[end]);
    if (byte == 0) return false;
    at ^= byte;
    if (at >= units_.size() || label(units_[at]) != byte) return false;
    const bool leaf = (units_[at] >> 8 & 1) != 0;
    at ^= offset(units_[at]);
    if (!leaf) continue;
    if (at >= units_.size()) return false;
    const size_t begin = units_[at] & 0x7fffffff;
    if (begin >= replacements_.size()) return false;
    const std::string_view rest = std::string_view(replacements_).substr(begin);
    if (!use(end + 1, rest.substr(0, rest.find('\0')))) return false;
  }
  return text.size() < kLongestEntry;
}

std::optional<Charsmap::Match> Charsmap::find_longest(std::string_view text, bool* is_open) const {
  std::optional<Match> longest;
  const bool ended = for_each_prefix(text, [&](size_t end, std::string_view replacement) {
    longest = Match{end, replacement};
    return true;
  });
  if (is_open != nullptr) *is_open = ended;
  return longest;
}

std::optional<std::string_view> Charsmap::find_shortest(std::string_view text) const {
  std::optional<std::string_view> shortest;
  (void)for_each_prefix(text, [&](size_t, std::string_view replacement) {
    shortest = replacement;
    return false;
  });
  return shortest;
}

}  // namespace tessera
