// Values as Python prints them, and as its JSON.
#pragma once

#include <optional>
#include <string>

#include "text/jinja/value.h"
#include "text/json.h"

namespace tessera::jinja {

// The shortest text that reads back as the same number: "1.0", "1e+16", "inf".
std::string print_real(double value);

// str(): the text of `{{ value }}`. An error for functions and generators.
Result<Text> print(Budget& budget, const Value& value);
// repr(): quotes texts.
Result<Text> print_quoted(Budget& budget, const Value& value);

// json.dumps().
struct JsonStyle {
  std::optional<std::string> indent;  // nullopt: on one line
  std::optional<std::string> item_separator, key_separator;
  bool sort_keys = false, ensure_ascii = false;
};
Result<Text> print_json(Budget& budget, const Value& value, const JsonStyle& style);

// Texts get `source`. kInvalidArgument for integers beyond 64 bits.
Result<Value> from_json(Budget& budget, const Json& json, Source source);

}  // namespace tessera::jinja
