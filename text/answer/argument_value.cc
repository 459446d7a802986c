#include "text/answer/argument_value.h"

#include <optional>
#include <string>

#include "graph/base/text.h"
#include "text/answer/literal.h"
#include "text/answer/payload_scanner.h"
#include "text/repeated_keys.h"

namespace tessera::answer {
namespace {

bool is_bracketed(std::string_view text, Syntax syntax) {
  if (text.empty() || (text[0] != '{' && text[0] != '[')) return false;
  PayloadScanner scanner(syntax, 0);
  return scanner.advance(text) == PayloadScanner::Progress::kEnd && scanner.at() == text.size();
}

// The value that a text parses to, other than a text.
std::optional<Json> read_value(std::string_view raw) {
  const std::string_view text = trim(raw);
  if (is_bracketed(text, Syntax::kJson))
    if (Json value = parse_bounded_json(text); !value.is_null()) return value;
  if (is_bracketed(text, Syntax::kPython))
    if (std::optional<Json> value = parse_literal(text)) return value;
  if (text == "true" || text == "True") return Json(true);
  if (text == "false" || text == "False") return Json(false);
  if (text == "null" || text == "None") return Json();
  // JSON excludes some numbers of other readers, such as 007.
  const bool is_number = !text.empty() && text.size() < 64 &&
                         text.find_first_not_of("0123456789+-.eE") == std::string_view::npos;
  if (is_number)
    if (Result<Json> value = parse_json_with_last_keys(text, "an argument"); value.ok()) return std::move(value).value();
  return std::nullopt;
}

}  // namespace

Json parse_bounded_json(std::string_view text) {
  if (!is_bracketed(text, Syntax::kJson)) return {};
  Result<Json> parsed = parse_json_with_last_keys(text, "arguments");
  return parsed.ok() ? std::move(parsed).value() : Json();
}

bool is_declared_text(std::string_view raw, const ArgumentSchema& schema) {
  const ArgumentSchema::Verdict text = schema.check(Json(raw));
  return text.is_valid && text.is_named;
}

Json argument_value(std::string_view raw, const ArgumentSchema& schema, bool may_be_text) {
  // CDATA is XML's quoting.
  if (raw.starts_with("<![CDATA[") && raw.ends_with("]]>")) return raw.substr(9, raw.size() - 12);
  std::optional<Json> value = read_value(raw);
  if (!value) return raw;
  if (!schema.is_known() || !may_be_text) return std::move(*value);
  const ArgumentSchema::Verdict other = schema.check(*value);
  const bool is_null = value->is_null() && other.is_valid && other.is_named;
  if (is_null) return std::move(*value);
  if (is_declared_text(raw, schema)) return raw;
  if (other.is_valid) return std::move(*value);
  // Neither or only the text is valid, and the schema names no text: the type decides.
  if (schema.check(Json(raw)).is_valid || !schema.allows_type_of(*value)) return raw;
  return schema.names_type_of(Json(raw)) ? Json(raw) : std::move(*value);
}

}  // namespace tessera::answer
