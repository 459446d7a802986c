// Taking texts apart and putting them together, as Python's methods of str. Characters keep their origin.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "text/jinja/text.h"

namespace tessera::jinja {

// Without white space, or without any of `chars`, on the sides given.
Result<Text> strip(Budget& budget, const Text& text, bool left, bool right, const std::optional<Text>& chars);
// Without a separator: at white space. most < 0: all parts.
Result<std::vector<Text>> split(Budget& budget, const Text& text, const std::optional<Text>& separator,
                                int64_t most, bool from_right);
Result<std::vector<Text>> split_lines(Budget& budget, const Text& text, bool keep_ends);
// most < 0: all.
Result<Text> replace(Budget& budget, const Text& text, const Text& old, const Text& fresh, int64_t most);

// Bytes at which `part` begins, npos for none; in linear time, unlike std::string_view.
size_t find_first(std::string_view text, std::string_view part, size_t from = 0);
size_t find_last(std::string_view text, std::string_view part);

enum class Padding : uint8_t { kLeft, kRight, kBoth };
Result<Text> pad(Budget& budget, const Text& text, int64_t width, const Text& fill, Padding side);

}  // namespace tessera::jinja
