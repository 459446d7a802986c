// Ranges of numbers as expressions over their decimal digits, without exponents.
#pragma once

#include <optional>
#include <string>

#include "graph/base/result.h"
#include "text/grammar/json_text.h"
#include "text/json.h"

namespace tessera::grammar {

// Decimal: no leading zeros except a single one, no trailing zeros in the fraction.
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

// Rounding: direction in which a number between doubles becomes one; readers compare with either.
enum class Rounding : uint8_t { kUp, kDown };
// kUnsupported for more than 400 digits before the point or 40 after it.
Result<Decimal> decimal_of(const Json& number, Rounding rounding = Rounding::kUp);
// Negative if a < b, 0 if equal.
int compare(const Decimal& a, const Decimal& b);

// Numbers in a range with a bound of at most kMostBoundDigits, with or without fraction.
// Excludes -0, and fractions that a double rounds to an integer. May be empty.
ExpressionId number_in_range(JsonText& json, const NumberRange& range, bool has_fraction);

}  // namespace tessera::grammar
