#include "text/grammar/number_range.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <string_view>
#include <utility>
#include <vector>

#include "graph/base/text.h"
#include "text/grammar/schema_json.h"

namespace tessera::grammar {
namespace {

constexpr size_t kMostInteger = 18, kMostFraction = 40, kMostDigits = 400;
constexpr size_t kExactDigits = 15;  // digits that a double distinguishes

// Tail: the digits of a bound's fraction that are still to be matched; empty: all zeros.
struct Tail {
  std::string_view digits;
  bool is_exclusive = false;
};
using Limit = std::optional<Tail>;  // nullopt: unlimited

class RangeWriter {
 public:
  RangeWriter(JsonText& json, const NumberRange& range) : json_(json), out_(json.expressions()) {
    for (const auto& bound : {range.lower, range.upper})
      if (bound && bound->is_exclusive && compare(bound->value, {}) != 0)
        max_extra_digits_ = std::min(max_extra_digits_, extra_digits(bound->value));
  }

  // Magnitudes from lower to upper.
  ExpressionId magnitudes(const NumberBound& lower, const NumberBound& upper, bool has_fraction) {
    const std::string &low = lower.value.integer, &high = upper.value.integer;
    // A double with 16 or more integer digits has hardly a fraction: above 15 digits only integers.
    if (!has_fraction || low.size() > kExactDigits) {
      const bool above = !lower.value.fraction.empty() || lower.is_exclusive;
      const bool below = upper.value.fraction.empty() && upper.is_exclusive;
      return integers(above ? successor(low) : low, below ? predecessor(high) : high);
    }
    if (high.size() > kExactDigits) {
      const NumberBound last{{false, std::string(kExactDigits, '9'), ""}, false};
      const NumberBound next{{false, "1" + std::string(kExactDigits, '0'), ""}, false};
      return out_.choice({magnitudes(lower, last, true), magnitudes(next, upper, false)});
    }
    const Limit from = Tail{lower.value.fraction, lower.is_exclusive};
    const Limit to = Tail{upper.value.fraction, upper.is_exclusive};
    if (low == high) return out_.sequence({out_.literal(low), fraction(from, to)});
    return out_.choice({out_.sequence({out_.literal(low), fraction(from, {})}),
                        out_.sequence({integers(successor(low), predecessor(high)), fraction({}, {})}),
                        out_.sequence({out_.literal(high), fraction({}, to)})});
  }

 private:
  // Below an exclusive bound no number may round to the
  // bound as a double, which distinguishes 15 digits.
  static uint32_t extra_digits(const Decimal& bound) {
    const size_t used = bound.integer.size() + bound.fraction.size();
    return used < kExactDigits ? static_cast<uint32_t>(kExactDigits - used) : 1;
  }
  static bool is_less(std::string_view a, std::string_view b) {
    return a.size() != b.size() ? a.size() < b.size() : a < b;
  }
  static std::string successor(std::string digits) {
    size_t at = digits.size();
    while (at > 0 && digits[at - 1] == '9') digits[--at] = '0';
    if (at == 0) return "1" + digits;
    ++digits[at - 1];
    return digits;
  }
  static std::string predecessor(std::string digits) {  // of 0: empty, below everything
    if (digits == "0") return {};
    size_t at = digits.size();
    while (digits[at - 1] == '0') digits[--at] = '9';
    --digits[at - 1];
    if (digits[0] == '0' && digits.size() > 1) digits.erase(0, 1);
    return digits;
  }

  ExpressionId digit(int first, int last) {
    return out_.characters(
        CharacterSet({{static_cast<uint32_t>('0' + first), static_cast<uint32_t>('0' + last)}}));
  }

  // Integers from low to high, by digit count.
  ExpressionId integers(const std::string& low, const std::string& high) {
    std::vector<ExpressionId> parts;
    for (size_t size = low.size(); size <= high.size(); ++size) {
      const std::string from = size == low.size() ? low : "1" + std::string(size - 1, '0');
      const std::string to = size == high.size() ? high : std::string(size, '9');
      if (!is_less(to, from)) parts.push_back(same_length(from, to));
    }
    return out_.choice(std::move(parts));
  }

  ExpressionId any_digits(size_t count) {
    return json_.digits(static_cast<uint32_t>(count), static_cast<uint32_t>(count));
  }

  ExpressionId same_length(std::string_view low, std::string_view high) {
    const bool is_whole = low.find_first_not_of('0') == low.npos && high.find_first_not_of('9') == high.npos;
    if (is_whole) return any_digits(low.size());
    const int from = low[0] - '0', to = high[0] - '0';
    if (from == to) return out_.sequence({digit(from, from), same_length(low.substr(1), high.substr(1))});
    const size_t rest = low.size() - 1;
    const std::string least(rest, '0'), greatest(rest, '9');
    std::vector<ExpressionId> parts{out_.sequence({digit(from, from), same_length(low.substr(1), greatest)}),
                                    out_.sequence({digit(to, to), same_length(least, high.substr(1))})};
    if (from + 1 < to) parts.push_back(out_.sequence({digit(from + 1, to - 1), any_digits(rest)}));
    return out_.choice(std::move(parts));
  }

  static bool excludes_nothing(const Limit& lower) {
    return !lower || (lower->digits.empty() && !lower->is_exclusive);
  }

  // Whether stopping here is within the limits.
  static bool can_stop(const Limit& lower, const Limit& upper) {
    return excludes_nothing(lower) && (!upper || !upper->digits.empty() || !upper->is_exclusive);
  }

  // An optional point with digits.
  ExpressionId fraction(const Limit& lower, const Limit& upper) {
    std::vector<ExpressionId> parts{out_.sequence({out_.literal("."), some_digits(lower, upper)})};
    if (can_stop(lower, upper)) parts.push_back(out_.empty());
    return out_.choice(std::move(parts));
  }

  ExpressionId more_digits(const Limit& lower, const Limit& upper) {
    std::vector<ExpressionId> parts{some_digits(lower, upper)};
    if (can_stop(lower, upper)) parts.push_back(out_.empty());
    return out_.choice(std::move(parts));
  }

  // At least one digit. Recursion ends with the limit's digits.
  ExpressionId some_digits(const Limit& lower, const Limit& upper) {
    if (upper && upper->digits.empty())  // only zeros stay at the limit
      return upper->is_exclusive || !excludes_nothing(lower) ? out_.nothing()
                                                    : out_.repeat(digit(0, 0), 1, max_extra_digits_);
    if (excludes_nothing(lower) && !upper) return json_.digits(1, max_extra_digits_);
    if (!upper && lower->digits.empty())  // above zero
      return out_.sequence(
          {out_.repeat(digit(0, 0), 0, max_extra_digits_), digit(1, 9), json_.digits(0, max_extra_digits_)});
    const int least = excludes_nothing(lower) || lower->digits.empty() ? 0 : lower->digits[0] - '0';
    const int most = upper ? upper->digits[0] - '0' : 9;
    std::vector<ExpressionId> parts;
    for (int each = least; each <= most; ++each) {
      Limit next_lower, next_upper;
      if (!excludes_nothing(lower) && each == least)
        next_lower = Tail{lower->digits.substr(lower->digits.empty() ? 0 : 1), lower->is_exclusive};
      if (upper && each == most) next_upper = Tail{upper->digits.substr(1), upper->is_exclusive};
      parts.push_back(out_.sequence({digit(each, each), more_digits(next_lower, next_upper)}));
    }
    return out_.choice(std::move(parts));
  }

  JsonText& json_;
  Expressions& out_;
  uint32_t max_extra_digits_ = kMostInteger;  // allowed after the bound's own digits
};

std::string trimmed_fraction(std::string fraction) {
  while (!fraction.empty() && fraction.back() == '0') fraction.pop_back();
  return fraction;
}

// The shortest digits that denote the double, without an exponent.
std::string expand(double value) {
  char buffer[512];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::scientific);
  std::string text(buffer, end.ptr);
  const size_t e = text.find('e');
  const int64_t exponent = parse_i64(text[e + 1] == '+' ? text.substr(e + 2) : text.substr(e + 1)).value_or(0);
  std::string digits = text.substr(0, e);
  const bool is_negative = digits.starts_with("-");
  std::erase_if(digits, [](char each) { return each == '.' || each == '-'; });
  const int64_t point = exponent + 1;  // digits before the point
  if (point <= 0) digits.insert(0, static_cast<size_t>(1 - point), '0');
  const auto whole = static_cast<size_t>(std::max<int64_t>(point, 1));
  if (digits.size() < whole) digits.append(whole - digits.size(), '0');
  if (digits.size() > whole) digits.insert(whole, ".");
  return (is_negative ? "-" : "") + digits;
}

Decimal parse_decimal(std::string text) {
  Decimal decimal;
  decimal.is_negative = text.starts_with("-");
  if (decimal.is_negative) text.erase(0, 1);
  const size_t point = text.find('.');
  decimal.integer = text.substr(0, point);
  if (point != std::string::npos) decimal.fraction = trimmed_fraction(text.substr(point + 1));
  if (decimal.integer == "0" && decimal.fraction.empty()) decimal.is_negative = false;
  return decimal;
}

NumberBound magnitude(NumberBound bound) {
  bound.value.is_negative = false;
  return bound;
}

}  // namespace

Result<Decimal> decimal_of(const Json& number, Rounding rounding) {
  std::string text;
  if (number.is_number_float()) {
    const double value = number.get<double>();
    text = expand(value);
    // Above 2^53 the shortest digits may differ from the double's value: the larger of both for kUp, else the smaller.
    if (std::abs(value) >= 0x1p53) {
      char buffer[512];
      const auto end = std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::fixed, 0);
      const Decimal shown = parse_decimal(text), exact = parse_decimal(std::string(buffer, end.ptr));
      return (rounding == Rounding::kUp) == (compare(shown, exact) < 0) ? exact : shown;
    }
  } else {
    text = json_text(number);
  }
  Decimal decimal = parse_decimal(std::move(text));
  if (decimal.integer.size() > kMostDigits || decimal.fraction.size() > kMostFraction)
    return Status(StatusCode::kUnsupported,
                  format("found {}, wanted at most {} digits before the point and {} after it", json_text(number),
                         kMostDigits, kMostFraction));
  return decimal;
}

int compare(const Decimal& a, const Decimal& b) {
  if (a.is_negative != b.is_negative) return a.is_negative ? -1 : 1;
  int order = a.integer.size() != b.integer.size() ? (a.integer.size() < b.integer.size() ? -1 : 1)
                                                   : a.integer.compare(b.integer);
  if (order == 0) order = a.fraction.compare(b.fraction);
  return a.is_negative ? -order : order;
}

ExpressionId number_in_range(JsonText& json, const NumberRange& range, bool has_fraction) {
  Expressions& out = json.expressions();
  const Decimal nought;
  // Without a bound: 18 digits, or one more than the other bound's.
  const auto largest = [](const std::optional<NumberBound>& other) {
    const size_t digits = other ? other->value.integer.size() + 1 : 0;
    const size_t most = std::clamp(digits, kMostInteger, kMostBoundDigits);
    return NumberBound{{false, std::string(most, '9'), ""}, false};
  };
  if (range.lower && range.upper) {
    const int order = compare(range.lower->value, range.upper->value);
    if (order > 0 || (order == 0 && (range.lower->is_exclusive || range.upper->is_exclusive)))
      return out.nothing();
  }
  RangeWriter writer(json, range);
  std::vector<ExpressionId> parts;
  if (!range.upper || !range.upper->value.is_negative) {
    const bool is_from_nought = !range.lower || range.lower->value.is_negative;
    parts.push_back(writer.magnitudes(is_from_nought ? NumberBound{nought, false} : *range.lower,
                                      range.upper ? *range.upper : largest(is_from_nought ? std::nullopt : range.lower),
                                      has_fraction));
  }
  if (!range.lower || range.lower->value.is_negative) {
    const bool is_to_nought = !range.upper || !range.upper->value.is_negative;
    const ExpressionId below =
        writer.magnitudes(is_to_nought ? NumberBound{nought, true} : magnitude(*range.upper),
                          range.lower ? magnitude(*range.lower) : largest(is_to_nought ? std::nullopt : range.upper),
                          has_fraction);
    parts.push_back(out.sequence({out.literal("-"), below}));
  }
  return out.choice(std::move(parts));
}

}  // namespace tessera::grammar
