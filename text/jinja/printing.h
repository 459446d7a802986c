// Values as Python prints them, and as its JSON.
#pragma once

#include <optional>
#include <string>

#include "text/jinja/value.h"
#include "text/json.h"

namespace tessera::jinja {

// "1.0", "1e+16", "inf": the shortest that reads back as the same number.
std::string print_real(double value);

// str(): what `{{ value }}` writes. An error for what has no text of its own: functions, generators.
Result<Text> print(Budget& budget, const Value& value);
// repr(): texts in quotes.
Result<Text> print_quoted(Budget& budget, const Value& value);

// json.dumps().
struct JsonStyle {
  std::optional<std::string> indent;  // none: on one line
  std::optional<std::string> item_separator, key_separator;
  bool sort_keys = false, ensure_ascii = false;
};
Result<Text> print_json(Budget& budget, const Value& value, const JsonStyle& style);

// Texts have the source given. kInvalidArgument for integers beyond 64 bits.
Result<Value> from_json(Budget& budget, const Json& json, Source source);

}  // namespace tessera::jinja
