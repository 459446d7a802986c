#include "text/answer/marker.h"

#include <algorithm>
#include <cctype>

namespace tessera::answer {

bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

size_t skip_space(std::string_view text, size_t at) {
  while (at < text.size() && is_space(text[at])) ++at;
  return at;
}

size_t skip_bounded_space(std::string_view text, size_t at) {
  return skip_space(text.substr(0, std::min(text.size(), at + kMostSpace)), at);
}

bool is_blank(std::string_view text) { return skip_space(text, 0) == text.size(); }

std::string_view without_trailing_space(std::string_view text) {
  while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
  return text;
}

Matched match_marker(std::string_view marker, std::string_view text, size_t at) {
  for (size_t i = 0; i < marker.size();) {
    if (is_space(marker[i])) {
      i = skip_space(marker, i);
      at = skip_bounded_space(text, at);
      continue;
    }
    if (at >= text.size()) return {Match::kPartial, 0};
    if (text[at] != marker[i]) return {Match::kNo, 0};
    ++at;
    ++i;
  }
  return {Match::kYes, at};
}

Matched match_after_space(std::string_view marker, std::string_view text, size_t at) {
  return match_marker(marker, text, skip_bounded_space(text, at));
}

bool is_distinct(std::string_view prefix) {
  constexpr size_t kLeast = 4;
  return prefix.size() >= kLeast && std::ranges::any_of(prefix, [](char c) {
           return !is_space(c) && std::isalnum(static_cast<unsigned char>(c)) == 0;
         });
}

bool is_tag(std::string_view text) { return text.size() > 2 && (text[0] == '<' || text[0] == '['); }

std::vector<std::string_view> split_tags(std::string_view text) {
  std::vector<std::string_view> parts;
  size_t begin = 0;
  for (size_t i = 1; i <= text.size(); ++i) {
    const bool is_boundary = i == text.size() || text[i] == '<' || text[i] == '[' || text[i - 1] == '>' ||
                             text[i - 1] == ']' || is_space(text[i]) != is_space(text[i - 1]);
    if (!is_boundary) continue;
    parts.push_back(text.substr(begin, i - begin));
    begin = i;
  }
  return parts;
}

}  // namespace tessera::answer
