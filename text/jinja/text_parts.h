// Python's string methods for splitting and joining texts. Characters keep their origin.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "text/jinja/text.h"

namespace tessera::jinja {

// Strips white space, or any of `chars`, on the given sides.
Result<Text> strip(Budget& budget, const Text& text, bool left, bool right, const std::optional<Text>& chars);
// Without a separator: splits at white space. most < 0: unlimited.
Result<std::vector<Text>> split(Budget& budget, const Text& text, const std::optional<Text>& separator,
                                int64_t most, bool from_right);
Result<std::vector<Text>> split_lines(Budget& budget, const Text& text, bool keep_ends);
// most < 0: unlimited.
Result<Text> replace(Budget& budget, const Text& text, const Text& old, const Text& fresh, int64_t most);

// First byte of `part`, or npos; linear, unlike std::string_view.
size_t find_first(std::string_view text, std::string_view part, size_t from = 0);
size_t find_last(std::string_view text, std::string_view part);

enum class Padding : uint8_t { kLeft, kRight, kBoth };
Result<Text> pad(Budget& budget, const Text& text, int64_t width, const Text& fill, Padding side);

}  // namespace tessera::jinja
