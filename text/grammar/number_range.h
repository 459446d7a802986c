// Ranges of numbers as expressions over their decimal digits, without exponents.
#pragma once

#include <optional>
#include <string>

#include "graph/base/result.h"
#include "text/grammar/json_text.h"
#include "text/json.h"

namespace tessera::grammar {

// A decimal number: no leading zeros but a single one, no zeros at the fraction's end.
struct Decimal {
  bool is_negative = false;
  std::string integer = "0", fraction;
};

struct NumberBound {
  Decimal value;
  bool is_exclusive = false;
};

struct NumberRange {
  std::optional<NumberBound> lower, upper;
};

inline constexpr size_t kMostBoundDigits = 40;  // before the point

// How a number that is written as a double, and that a double is not, becomes one: readers compare with either.
enum class Rounding : uint8_t { kUp, kDown };
// kUnsupported for more than 400 digits before the point or 40 after it.
Result<Decimal> decimal_of(const Json& number, Rounding rounding = Rounding::kUp);
// Below 0 where a < b, 0 where they are equal.
int compare(const Decimal& a, const Decimal& b);

// Numbers in a range that has a bound of at most kMostBoundDigits, with a fraction or not. -0 is left out, and fractions of
// numbers that a double rounds to whole ones. Perhaps nothing.
ExpressionId number_in_range(JsonText& json, const NumberRange& range, bool has_fraction);

}  // namespace tessera::grammar
