// JsonText: parts of JSON texts as expressions: strings, numbers, white
// space, any value. Recurring parts are shared rules. One thread.
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
#include "text/grammar/language.h"
#include "text/json.h"

namespace tessera::grammar {

// TextForm: a plain text, or the inside of a JSON string, where some characters have exactly one escape each: \" \\ \b \f
// \r \t \u00xx.
enum class TextForm : uint8_t { kPlain, kJsonString };

// One character of a set.
ExpressionId character_of(Expressions& out, const CharacterSet& set, TextForm form);
// Whether a text may be a name without quotation marks.
bool is_word(std::string_view text);
// A text verbatim; for JSON strings without quotes.
std::string written(std::string_view text, TextForm form);

class JsonText {
 public:
  JsonText(Expressions& out, const JsonStyle& style) : out_(out), style_(style) {}

  ExpressionId space();  // optional white space around values
  ExpressionId any_value();
  ExpressionId any_array();
  ExpressionId any_object();
  // With any escapes; minimum to maximum characters.
  ExpressionId string(uint32_t minimum = 0, uint32_t maximum = kUnbounded);
  ExpressionId integer();  // at most 18 digits
  ExpressionId number();   // at most 18 digits before the point, 18 after it and 2 in an exponent
  // `minimum` to `maximum` digits.
  ExpressionId digits(uint32_t minimum, uint32_t maximum);
  // Members [separator "," and space] in braces, items in brackets.
  ExpressionId braces(std::span<const Member> members);
  ExpressionId separator();  // a comma and space
  // `name`, a colon, and a value.
  ExpressionId member(ExpressionId name, ExpressionId value);
  ExpressionId name(std::string_view name);
  ExpressionId null();
  ExpressionId boolean();
  // Exactly this value. Recursion depth is the value's.
  ExpressionId exactly(const Json& value);
  // Any name except these.
  ExpressionId name_except(std::span<const std::string> names);

  // Strings, as the style writes them: whether it limits their texts, these texts, and how characters are written.
  bool limits_texts() const { return !style_.quote.empty() || !style_.forbidden.empty(); }
  LanguageId allowed_texts(Languages& languages) const;
  TextForm text_form() const { return style_.quote.empty() ? TextForm::kJsonString : TextForm::kPlain; }
  ExpressionId quoted(ExpressionId content);
  std::optional<std::string> quoted_text(std::string_view text) const;  // nullopt: it cannot be written

  Expressions& expressions() { return out_; }

 private:
  // The rule of this name, created on first use.
  template <class Make>
  ExpressionId shared(const std::string& name, Make make);
  // Texts of a language; none where it is too large.
  ExpressionId texts(Languages& languages, LanguageId language, TextForm form);

  Expressions& out_;
  const JsonStyle style_;
  std::map<std::string, RuleId> rules_;
};

}  // namespace tessera::grammar
