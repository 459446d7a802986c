// Marker: a text that a template writes around reasoning, content and calls, such as "<tool_call>" or
// "<invoke name=". Models vary the white space between its words, so a run of white space in a marker matches any run of
// up to kMostSpace bytes, also none.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::answer {

// Bounds what is read again when text comes in small pieces.
inline constexpr size_t kMostSpace = 64;

bool is_space(char c);
size_t skip_space(std::string_view text, size_t at);          // the first byte from `at` on that is none
size_t skip_bounded_space(std::string_view text, size_t at);  // at most kMostSpace bytes on
bool is_blank(std::string_view text);
std::string_view without_trailing_space(std::string_view text);

enum class Match : uint8_t { kNo, kPartial, kYes };  // kPartial: the text ends before it is decided
struct Matched {
  Match match = Match::kNo;
  size_t end = 0;  // in the text, for kYes
};

// `marker` at byte `at` of the text; it begins and ends without white space. An empty one matches.
Matched match_marker(std::string_view marker, std::string_view text, size_t at);
// The same behind white space, of which an unlimited run is kNo.
Matched match_after_space(std::string_view marker, std::string_view text, size_t at);

// Whether a text looks like a mark: "<b>", "[c]".
bool is_tag(std::string_view text);

// Pieces between which one tag may end and the next begin: "</a>", "\n", "<b=", "x".
std::vector<std::string_view> split_tags(std::string_view text);

}  // namespace tessera::answer
