// Ranges of numbers as expressions over their decimal digits, without exponents.
#pragma once

#include <optional>
#include <string>

#include "graph/base/result.h"
#include "serialize/grammar/json_text.h"
#include "serialize/json.h"

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

// kUnsupported for more than 18 digits before the point or 40 after it.
Result<Decimal> decimal_of(const Json& number);
// Below 0 where a < b, 0 where they are equal.
int compare(const Decimal& a, const Decimal& b);

// Numbers in a range that has a bound, with a fraction or not. -0 is left out. Perhaps nothing.
ExpressionId number_in_range(JsonText& json, const NumberRange& range, bool has_fraction);

}  // namespace tessera::grammar
