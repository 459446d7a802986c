// JsonText: the parts of JSON texts as expressions: strings, numbers, white space, any value. Parts that recur are rules,
// made once. One thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "text/grammar/expression.h"
#include "text/grammar/grammar.h"
#include "text/json.h"

namespace tessera::grammar {

// Where characters stand: in the text itself, or between the quotes of a JSON string, where some are written as escapes,
// each in one way alone: \" \\ \b \f \n \r \t \u00xx.
enum class TextForm : uint8_t { kPlain, kJsonString };

// One character of a set.
ExpressionId character_of(Expressions& out, const CharacterSet& set, TextForm form);
// A text as it stands; in a JSON string without the quotes.
std::string written(std::string_view text, TextForm form);

class JsonText {
 public:
  JsonText(Expressions& out, const JsonStyle& style) : out_(out), style_(style) {}

  ExpressionId space();  // what may be around values
  ExpressionId any_value();
  ExpressionId any_array();
  ExpressionId any_object();
  // With any escapes, minimum to maximum characters.
  ExpressionId string(uint32_t minimum = 0, uint32_t maximum = kUnbounded);
  ExpressionId integer();  // at most 18 digits
  ExpressionId number();   // at most 18 digits before the point, 18 after it and 2 in an exponent
  // Digits of a number, `minimum` to `maximum` of them.
  ExpressionId digits(uint32_t minimum, uint32_t maximum);
  // Members [separator "," and space] within braces, items within brackets.
  ExpressionId braces(std::span<const Member> members);
  ExpressionId separator();  // a comma and space
  // `name` and a colon before a value.
  ExpressionId member(ExpressionId name, ExpressionId value);
  // This value alone. Recursion is as deep as the value is.
  ExpressionId exactly(const Json& value);
  // A name that is none of these.
  ExpressionId name_except(std::span<const std::string> names);

  Expressions& expressions() { return out_; }

 private:
  // The rule of this name, made with the first call.
  template <class Make>
  ExpressionId shared(const std::string& name, Make make);

  Expressions& out_;
  const JsonStyle style_;
  std::map<std::string, RuleId> rules_;
};

}  // namespace tessera::grammar
