#include "text/answer/call_object.h"

#include <algorithm>
#include <array>
#include <string>

#include "graph/base/text.h"
#include "text/answer/argument_value.h"
#include "text/answer/marker.h"

namespace tessera::answer {
namespace {

std::array<std::string_view, 4> name_keys(const CallForm& form) {
  return {form.name_key, "name", "tool_name", "function"};
}
std::array<std::string_view, 3> id_keys(const CallForm& form) { return {form.id_key, "id", "tool_call_id"}; }
std::array<std::string_view, 3> argument_keys(const CallForm& form) {
  return {form.arguments_key, "arguments", "parameters"};
}

template <size_t N>
std::string text_at(const Json& object, const std::array<std::string_view, N>& keys) {
  for (const std::string_view key : keys)
    if (const auto found = object.find(key); found != object.end() && found->is_string())
      return found->get<std::string>();
  return {};
}

// Arguments as an object, parsed if they are text; null for anything else.
Json arguments_object(const Json& value) {
  if (value.is_object()) return value;
  if (value.is_null()) return Json::object();
  if (!value.is_string()) return {};
  const std::string& text = value.get_ref<const std::string&>();
  if (is_blank(text)) return Json::object();
  Json parsed = parse_bounded_json(text);
  return parsed.is_object() ? parsed : Json();
}

// The arguments among an object's members; nullopt if it has none.
std::optional<Json> find_arguments(const Json& object, const CallForm& form) {
  for (const std::string_view key : argument_keys(form))
    if (const auto found = object.find(key); found != object.end()) return arguments_object(*found);
  return std::nullopt;
}

const Json& function_of(const Json& given) {
  const auto nested = given.find("function");
  return nested != given.end() && nested->is_object() ? *nested : given;
}

// The text that a JSON string begins, as far as its escapes are complete.
std::string begun_string(std::string_view body) {
  for (int tries = 0; tries < 4; ++tries) {  // an escape takes two at most, as surrogates do, and a part of a third
    const Json text = Json::parse('"' + std::string(body) + '"', nullptr, false);
    if (text.is_string()) return text.get<std::string>();
    const size_t escape = body.rfind('\\');
    if (escape == std::string_view::npos) break;
    body = body.substr(0, escape);
  }
  return {};
}

// The beginning of arguments: an object, or a text that holds one.
std::string begun_arguments(std::string_view value) {
  if (value.starts_with('{')) return std::string(value);
  return value.starts_with('"') ? begun_string(value.substr(1)) : std::string();
}

struct Member {
  std::string key;
  std::string_view value;
};

// The member in progress: its key, if complete, and the beginning of its value.
Member begun_member(std::string_view text) {
  size_t at = skip_space(text, 0);
  if (at >= text.size() || text[at] != '"') return {};
  const size_t begin = at;
  for (++at; at < text.size() && text[at] != '"'; ++at)
    if (text[at] == '\\') ++at;
  if (at >= text.size()) return {};
  const Json key = Json::parse(text.substr(begin, at + 1 - begin), nullptr, false);
  at = skip_space(text, at + 1);
  if (!key.is_string() || at >= text.size() || text[at] != ':') return {};
  return {key.get<std::string>(), text.substr(skip_space(text, at + 1))};
}

template <size_t N>
bool has(const std::array<std::string_view, N>& keys, std::string_view key) {
  return std::ranges::find(keys, key) != keys.end();
}

// The object that is scanner.open()[level].
CutCall read_cut_object(std::string_view text, const PayloadScanner& scanner, size_t level, const CallForm& form) {
  const PayloadScanner::Bracket& bracket = scanner.open()[level];
  const bool is_innermost = level + 1 == scanner.open().size();
  // The last member may be complete.
  Json members = is_innermost ? parse_bounded_json(std::string(text.substr(bracket.begin)) + '}') : Json();
  Member last;
  if (!members.is_object()) {
    members = parse_bounded_json(scanner.closed(text, level));
    last = begun_member(text.substr(bracket.member));
  }
  if (!members.is_object()) return {};
  if (last.key == "function" && !is_innermost) {
    CutCall call = read_cut_object(text, scanner, level + 1, form);
    call.id = text_at(members, id_keys(form));
    return call;
  }
  const auto is_name = [&form](std::string_view key) {
    return form.is_keyed_by_name && !has(name_keys(form), key) && !has(id_keys(form), key) &&
           !has(argument_keys(form), key) && key != "type";
  };
  if (members.empty() && is_name(last.key)) return {"", last.key, begun_arguments(last.value)};
  if (members.size() == 1 && last.key.empty() && is_name(members.begin().key()) && members.front().is_object())
    return {"", members.begin().key(), dump(members.front())};
  const Json& object = function_of(members);
  CutCall call = {text_at(members, id_keys(form)), text_at(object, name_keys(form)), ""};
  if (has(argument_keys(form), last.key)) {
    call.arguments = begun_arguments(last.value);
  } else if (const std::optional<Json> arguments = find_arguments(object, form); arguments && arguments->is_object()) {
    call.arguments = dump(*arguments);
  }
  return call;
}

}  // namespace

bool has_marks(const CallForm& form) {
  return !form.section_open.empty() || form.steps[0].kind == CallStep::Kind::kMark;
}

std::optional<ToolCall> read_call_object(const Json& given, const CallForm& form) {
  if (!given.is_object()) return std::nullopt;
  ToolCall call;
  if (form.is_keyed_by_name && given.size() == 1) {
    call.name = given.begin().key();
    call.arguments = arguments_object(given.begin().value());
  } else {
    const Json& object = function_of(given);
    call.name = text_at(object, name_keys(form));
    call.id = text_at(given, id_keys(form));
    std::optional<Json> arguments = find_arguments(object, form);
    // Without marks, an object with only a name is a JSON answer.
    if (arguments || has_marks(form)) call.arguments = arguments ? std::move(*arguments) : Json::object();
  }
  if (call.name.empty() || !call.arguments.is_object()) return std::nullopt;
  return call;
}

CutCalls read_cut_objects(std::string_view text, const PayloadScanner& scanner, const CallForm& form) {
  if (text[scanner.open()[0].begin] == '{') return {{}, read_cut_object(text, scanner, 0, form)};
  CutCalls calls;
  const auto take = [&](const std::string& list) {
    const Json objects = parse_bounded_json(list);
    for (const Json& each : objects)
      if (std::optional<ToolCall> call = read_call_object(each, form)) calls.whole.push_back(std::move(*call));
    return objects.is_array() && !objects.empty();
  };
  if (take_whole(text, scanner, take)) return calls;
  const bool has_object = scanner.open().size() > 1 && text[scanner.open()[1].begin] == '{';
  calls.cut = has_object ? read_cut_object(text, scanner, 1, form) : CutCall();
  return calls;
}

}  // namespace tessera::answer
