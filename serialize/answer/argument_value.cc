#include "serialize/answer/argument_value.h"

#include <optional>
#include <string>

#include "graph/base/text.h"
#include "serialize/answer/literal.h"
#include "serialize/answer/payload_scanner.h"

namespace tessera::answer {
namespace {

bool is_bracketed(std::string_view text, Syntax syntax) {
  if (text.empty() || (text[0] != '{' && text[0] != '[')) return false;
  PayloadScanner scanner(syntax, 0);
  return scanner.advance(text) == PayloadScanner::Progress::kEnd && scanner.at() == text.size();
}

const Json* member(const Json* object, std::string_view key) {
  if (!object || !object->is_object()) return nullptr;
  const auto found = object->find(key);
  return found == object->end() ? nullptr : &*found;
}

bool is_declared_text(const Json& tools, std::string_view tool, std::string_view key) {
  if (!tools.is_array()) return false;
  for (const Json& each : tools) {
    const Json* function = member(&each, "function");
    if (!function) function = &each;
    const Json* name = member(function, "name");
    if (!name || *name != tool) continue;
    const Json* type = member(member(member(member(function, "parameters"), "properties"), key), "type");
    return type && *type == "string";
  }
  return false;
}

}  // namespace

Json parse_bounded_json(std::string_view text) {
  if (!is_bracketed(text, Syntax::kJson)) return {};
  Result<Json> parsed = parse_json(text, "arguments");
  return parsed.ok() ? std::move(parsed).value() : Json();
}

Json argument_value(std::string_view raw, const Json& tools, std::string_view tool, std::string_view key) {
  // XML's way to write a text as it is.
  if (raw.starts_with("<![CDATA[") && raw.ends_with("]]>")) return raw.substr(9, raw.size() - 12);
  if (is_declared_text(tools, tool, key)) return raw;
  const std::string_view text = trim(raw);
  if (is_bracketed(text, Syntax::kJson))
    if (Json value = parse_bounded_json(text); !value.is_null()) return value;
  if (is_bracketed(text, Syntax::kPython))
    if (std::optional<Json> value = parse_literal(text)) return std::move(*value);
  if (text == "true" || text == "True") return true;
  if (text == "false" || text == "False") return false;
  if (text == "null" || text == "None") return {};
  // JSON knows numbers that others read too, but none such as 007.
  const bool is_number = !text.empty() && text.size() < 64 &&
                         text.find_first_not_of("0123456789+-.eE") == std::string_view::npos;
  if (is_number)
    if (Result<Json> value = parse_json(text, "an argument"); value.ok()) return std::move(value).value();
  return raw;
}

}  // namespace tessera::answer
