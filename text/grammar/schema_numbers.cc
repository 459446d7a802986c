// Numbers of JSON schema, and their limits.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <string_view>
#include <tuple>

#include "graph/base/quote.h"
#include "graph/base/text.h"
#include "text/grammar/number_range.h"
#include "text/grammar/schema_reader.h"
#include "text/grammar/string_automaton.h"

namespace tessera::grammar {
namespace {

// NumberStep: digits * 10^zeros / 10^fraction.
struct NumberStep {
  uint32_t digits = 1, zeros = 0, fraction = 0;
};

Result<NumberStep> step_of(const Json& value) {
  constexpr uint32_t kMostDigits = 4096;
  const auto refused = [&](StatusCode code, std::string_view wanted) {
    return Status(code, format("found {}, wanted {}", json_text(value), wanted));
  };
  if (!is_number(value) || compare_numbers(value, Json(0)) <= 0)
    return refused(StatusCode::kInvalidArgument, "a number above 0");
  TSR_ASSIGN_OR_RETURN(const Decimal decimal, decimal_of(value));
  NumberStep step;
  step.fraction = static_cast<uint32_t>(decimal.fraction.size());
  std::string digits = decimal.integer + decimal.fraction;
  digits.erase(0, std::min(digits.find_first_not_of('0'), digits.size() - 1));
  while (step.fraction == 0 && digits.size() > 1 && digits.ends_with('0')) {
    digits.pop_back();
    ++step.zeros;
  }
  const auto number = digits.size() < 10 ? parse_i64(digits) : std::nullopt;
  if (!number || *number > kMostDigits)
    return refused(StatusCode::kUnsupported, format("at most {}, noughts at the end aside", kMostDigits));
  step.digits = static_cast<uint32_t>(*number);
  // Other fractions are inexact for binary readers: 19.99 would be no multiple of 0.01.
  if (step.fraction > 0) {
    const double exact = std::ldexp(value.get<double>(), 20);
    if (exact != std::floor(exact))
      return refused(StatusCode::kUnsupported, "a whole number, or halves of one such as 0.5 and 0.25");
  }
  return step;
}

// Numbers without exponents that are multiples of the step.
LanguageId multiples_of(Languages& languages, const NumberStep& step) {
  const CharacterSet nought({{'0', '0'}}), minus({{'-', '-'}});
  std::vector<LanguageId> parts;
  if (step.fraction == 0) {
    const LanguageId zeros = languages.repeat(languages.characters(nought), step.zeros, step.zeros);
    parts.push_back(languages.sequence(languages.multiples(step.digits), zeros));
    parts.push_back(languages.text("0"));
  }
  // With f fraction digits: multiples of digits / gcd(digits, 10^(fraction - f)).
  uint64_t power = 1;
  for (uint32_t f = step.fraction + 1; f-- > 0 && step.fraction > 0; power *= 10)
    parts.push_back(languages.multiples(step.digits / static_cast<uint32_t>(std::gcd(uint64_t{step.digits}, power)), f));
  const LanguageId sign = languages.choice({languages.empty(), languages.characters(minus)});
  return languages.sequence(sign, languages.choice(std::move(parts)));
}

}  // namespace

Result<SchemaReader::Limits> SchemaReader::read_limits(const Json& schema, const char* minimum,
                                                       const char* maximum, const std::string& where) {
  Limits limits;
  for (const auto& [key, target] :
       {std::pair(minimum, &limits.minimum), std::pair(maximum, &limits.maximum)}) {
    const auto found = schema.find(key);
    if (found == schema.end()) continue;
    const bool is_whole = is_number(*found) && is_of_type(*found, "integer");
    if (!is_whole || compare_numbers(*found, Json(0)) < 0)
      return schema_error(StatusCode::kInvalidArgument, where,
                          format("'{}' is {}, wanted a whole number, 0 or more", key, json_text(*found)));
    const bool is_large = compare_numbers(*found, Json(kMostRepetitions)) > 0;
    if (is_large && target == &limits.minimum)
      return schema_error(StatusCode::kUnsupported, where,
                          format("'{}' is {}, wanted at most {}", key, json_text(*found), kMostRepetitions));
    // No text is longer.
    *target = is_large ? kMostRepetitions : static_cast<uint32_t>(found->get<double>());
  }
  return limits;
}

Result<ExpressionId> SchemaReader::read_number(const Json& schema, bool is_integer,
                                               const std::string& where) {
  std::vector<NumberStep> steps;
  if (const auto found = schema.find("multipleOf"); found != schema.end())
    for (const Json& each : values_together(*found)) {
      const auto step = step_of(each);
      if (!step.ok())
        return schema_error(step.status().code(), where, format("'multipleOf': {}", step.status().message()));
      if (step->fraction == 0 && step->digits == 1 && step->zeros == 0)
        is_integer = true;
      else
        steps.push_back(*step);
    }
  TSR_ASSIGN_OR_RETURN(const ExpressionId numbers, read_range(schema, is_integer, where));
  if (steps.empty()) return numbers;
  TSR_ASSIGN_OR_RETURN(LanguageId language, languages_.of_expression(out_, numbers));
  for (const NumberStep& step : steps) language = languages_.both(language, multiples_of(languages_, step));
  auto automaton = StringAutomaton::of(languages_, language);
  // Large steps exclude large numbers.
  const LanguageId any = languages_.characters(CharacterSet({{0, kLastCharacter}}));
  for (const uint32_t most : {12u, 8u, 6u, 4u})
    if (!automaton.ok())
      automaton = StringAutomaton::of(languages_, languages_.both(language, languages_.repeat(any, 1, most)));
  if (!automaton.ok())
    return schema_error(automaton.status().code(), where, format("'multipleOf': {}", automaton.status().message()));
  if (automaton->states.empty()) return nothing(where, "no multiple of multipleOf is in the range");
  return write_automaton(out_, *automaton, TextForm::kPlain, 0, kUnbounded);
}

Result<ExpressionId> SchemaReader::read_range(const Json& schema, bool is_integer, const std::string& where) {
  NumberRange range;
  for (const auto& [key, is_lower, is_exclusive] :
       {std::tuple("minimum", true, false), std::tuple("exclusiveMinimum", true, true),
        std::tuple("maximum", false, false), std::tuple("exclusiveMaximum", false, true)}) {
    const auto found = schema.find(key);
    if (found == schema.end()) continue;
    if (!is_number(*found))
      return schema_error(StatusCode::kInvalidArgument, where,
                          format("'{}' is {}, wanted a number", key, quote_json(*found)));
    const auto value = decimal_of(*found, is_lower ? Rounding::kUp : Rounding::kDown);
    if (!value.ok())
      return schema_error(value.status().code(), where, format("'{}': {}", key, value.status().message()));
    if (value->integer.size() > kMostBoundDigits) {
      // No generated number has that many digits.
      if (value->is_negative == is_lower) continue;
      return schema_error(StatusCode::kUnsupported, where,
                          format("'{}' has {} digits before the point, wanted at most {}", key,
                                 value->integer.size(), kMostBoundDigits));
    }
    std::optional<NumberBound>& bound = is_lower ? range.lower : range.upper;
    const int order = bound ? compare(*value, bound->value) : 0;
    if (!bound || (is_lower ? order > 0 : order < 0) || (order == 0 && is_exclusive))
      bound = NumberBound{*value, is_exclusive};
  }
  if (!range.lower && !range.upper) return is_integer ? json_.integer() : json_.number();
  if (range.lower && range.upper)
    if (const int order = compare(range.lower->value, range.upper->value);
        order > 0 || (order == 0 && (range.lower->is_exclusive || range.upper->is_exclusive)))
      return nothing(where, "the least number is above the greatest");
  // Fractional bounds may contain no integer; the range is then empty.
  return number_in_range(json_, range, !is_integer);
}

Result<std::optional<ExpressionId>> SchemaReader::read_numerals(const Json& number, const Json& string,
                                                                const std::string& where) {
  TSR_ASSIGN_OR_RETURN(const LanguageId texts, string_language(string, where));
  if (string.contains("pattern")) {
    const auto automaton = StringAutomaton::of(languages_, texts);
    if (!automaton.ok() || automaton->states.empty()) return std::optional<ExpressionId>();
    const CharacterSet numeral({{'0', '9'}, {'+', '+'}, {'-', '.'}});
    for (const auto& state : automaton->states)
      for (const auto& edge : state.edges)
        if (!edge.characters.without(numeral).is_empty()) return std::optional<ExpressionId>();
  }
  TSR_ASSIGN_OR_RETURN(const ExpressionId allowed, read_number(number, number["type"] == "integer", where));
  TSR_ASSIGN_OR_RETURN(const LanguageId numbers, languages_.of_expression(out_, allowed));
  const auto shared = StringAutomaton::of(languages_, languages_.both(numbers, texts));
  if (!shared.ok() || shared->states.empty()) return std::optional<ExpressionId>();
  TSR_ASSIGN_OR_RETURN(ExpressionId written, write_automaton(out_, *shared, TextForm::kPlain, 0, kUnbounded));
  written = out_.shared(written, where + "/numerals");
  if (scope_.place != Place::kMarked) return std::optional(out_.choice({written, json_.quoted(written)}));
  return std::optional(is_written("string") || is_written("number") ? written : out_.nothing());
}

}  // namespace tessera::grammar
