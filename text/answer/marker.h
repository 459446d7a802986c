// Marker: a text that a template writes around reasoning, content and calls,
// such as "<tool_call>" or "<invoke name=". Models vary its white space, so
// a run of white space matches any run of up to kMostSpace bytes, also none.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::answer {

// Bounds repeated reading when text arrives in small pieces.
inline constexpr size_t kMostSpace = 64;

bool is_space(char c);
size_t skip_space(std::string_view text, size_t at);          // skips white space
size_t skip_bounded_space(std::string_view text, size_t at);  // skips at most kMostSpace bytes
bool is_blank(std::string_view text);
std::string_view without_trailing_space(std::string_view text);

enum class Match : uint8_t { kNo, kPartial, kYes };  // kPartial: undecided at the text's end
struct Matched {
  Match match = Match::kNo;
  size_t end = 0;  // end in the text, for kYes
};

// Matches `marker` at byte `at`; it has no white space at its ends. An empty one matches.
Matched match_marker(std::string_view marker, std::string_view text, size_t at);
// Likewise after white space, of at most kMostSpace bytes.
Matched match_after_space(std::string_view marker, std::string_view text, size_t at);

// Whether the beginning of a mark is more than plain text has by chance at its end: "<too" is, "<t" is not.
bool is_distinct(std::string_view prefix);

// Whether a text has the shape of a mark: "<b>", "[c]".
bool is_tag(std::string_view text);

// Splits a text at boundaries of tags: "</a>", "
// ", "<b=", "x".
std::vector<std::string_view> split_tags(std::string_view text);

}  // namespace tessera::answer
