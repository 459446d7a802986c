#include "engine/inference/request_row.h"

#include <algorithm>
#include <limits>

#include "engine/base/foreign_words.h"
#include "graph/base/quote.h"
#include "graph/base/text.h"

namespace tessera {
namespace {

enum class Type : uint8_t { kInteger, kReal, kFlag, kText, kStop, kIds, kSchema, kArray, kObject };
enum class Of : uint8_t { kAll, kMessages, kConstraint, kAdapter };

struct Known {
  std::string_view name;
  Type type;
  Of of = Of::kAll;
};

// Options of tsr_engine_submit, except "logits" and "keep", which need a program that answers; "adapter" is a path or a name.
constexpr Known kKnown[] = {
    {"max_tokens", Type::kInteger},
    {"min_tokens", Type::kInteger},
    {"temperature", Type::kReal},
    {"top_k", Type::kInteger},
    {"top_p", Type::kReal},
    {"min_p", Type::kReal},
    {"typical_p", Type::kReal},
    {"repetition_penalty", Type::kReal},
    {"presence_penalty", Type::kReal},
    {"frequency_penalty", Type::kReal},
    {"penalty_last", Type::kInteger},
    {"logit_bias", Type::kObject},
    {"seed", Type::kInteger},
    {"ignore_eos", Type::kFlag},
    {"stop", Type::kStop},
    {"stop_ids", Type::kIds},
    {"n", Type::kInteger},
    {"best_of", Type::kInteger},
    {"logprobs", Type::kInteger},
    {"prompt_logprobs", Type::kInteger},
    {"priority", Type::kInteger},
    {"adapter", Type::kText, Of::kAdapter},
    {"special", Type::kFlag},
    {"json_schema", Type::kSchema, Of::kConstraint},
    {"json", Type::kFlag, Of::kConstraint},
    {"regex", Type::kText, Of::kConstraint},
    {"choices", Type::kArray, Of::kConstraint},
    {"grammar", Type::kText, Of::kConstraint},
    {"name", Type::kText, Of::kMessages},
    {"template", Type::kText, Of::kMessages},
    {"tools", Type::kArray, Of::kMessages},
    {"tool_choice", Type::kText, Of::kMessages},
    {"documents", Type::kArray, Of::kMessages},
    {"variables", Type::kObject, Of::kMessages},
    {"now", Type::kInteger, Of::kMessages},
    {"continue_final_message", Type::kFlag, Of::kMessages},
};

Status invalid(std::string message) { return Status(StatusCode::kInvalidArgument, std::move(message)); }

std::string_view wanted(Type type) {
  switch (type) {
    case Type::kInteger: return "an integer of 64 bits";
    case Type::kReal: return "a number";
    case Type::kFlag: return "true or false";
    case Type::kText: return "a text without NUL";
    case Type::kStop: return "a text, or an array of texts";
    case Type::kIds: return "an array of token ids";
    case Type::kSchema: return "a JSON schema: an object, true or false";
    case Type::kArray: return "an array";
    case Type::kObject: return "an object";
  }
  return "";
}

bool is_integer(const Json& value) {
  constexpr auto kMost = static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
  return value.is_number_integer() && (!value.is_number_unsigned() || value.get<uint64_t>() <= kMost);
}

bool is_id(const Json& value) {
  return is_integer(value) && value.get<int64_t>() >= 0 &&
         value.get<int64_t>() <= std::numeric_limits<int32_t>::max();
}

bool is_text(const Json& value) { return value.is_string(); }

bool has_type(const Json& value, Type type) {
  switch (type) {
    case Type::kInteger: return is_integer(value);
    case Type::kReal: return value.is_number();
    case Type::kFlag: return value.is_boolean() || value == 0 || value == 1;
    case Type::kText: return is_text(value) && value.get<std::string>().find('\0') == std::string::npos;
    case Type::kStop: return is_text(value) || (value.is_array() && std::ranges::all_of(value, is_text));
    case Type::kIds: return value.is_array() && std::ranges::all_of(value, is_id);
    case Type::kSchema: return value.is_object() || value.is_boolean();
    case Type::kArray: return value.is_array();
    case Type::kObject: return value.is_object();
  }
  return false;
}

AttrValue option_value(const Json& value, Type type) {
  switch (type) {
    case Type::kInteger: return value.get<int64_t>();
    case Type::kReal: return value.get<double>();
    case Type::kFlag: return int64_t{value == true || value == 1};
    case Type::kText: return value.get<std::string>();
    case Type::kStop: return dump(is_text(value) ? Json::array({value}) : value);
    case Type::kIds: {
      std::vector<std::string> ids;
      for (const Json& id : value) ids.push_back(to_text(id.get<int32_t>()));
      return join(ids, ",");
    }
    case Type::kSchema:
    case Type::kArray:
    case Type::kObject: break;
  }
  return dump(value);
}

// Reads the prompt, exactly one.
Status take_prompt(const Json& object, RequestRow& row) {
  constexpr std::pair<std::string_view, RequestRow::Kind> kPrompts[] = {
      {"prompt", RequestRow::Kind::kText},
      {"messages", RequestRow::Kind::kMessages},
      {"ids", RequestRow::Kind::kIds}};
  std::string_view name;
  for (const auto& [each, kind] : kPrompts) {
    if (!object.contains(each)) continue;
    if (!name.empty())
      return invalid(format("found '{}' and '{}', wanted one of prompt, messages, ids", name, each));
    name = each;
    row.kind = kind;
  }
  if (name.empty())
    return invalid(
        "nothing to continue: wanted one of prompt (a text), messages (a conversation) and ids (token ids)");
  const Json& value = object[name];
  const auto refused = [&](std::string_view what) {
    return invalid(format("'{}' is '{}', wanted {}", name, quote_json(value, 64), what));
  };
  switch (row.kind) {
    case RequestRow::Kind::kText:
      if (!is_text(value)) return refused("a text");
      row.text = value.get<std::string>();
      break;
    case RequestRow::Kind::kMessages:
      if (!value.is_array() || value.empty())
        return refused("an array of messages: [{\"role\", \"content\"}]");
      row.text = dump(value);
      break;
    case RequestRow::Kind::kIds:
      if (!value.is_array() || value.empty() || !std::ranges::all_of(value, is_id))
        return refused("an array of token ids such as [1, 15043]");
      row.ids = value.get<std::vector<int32_t>>();
      break;
  }
  return {};
}

Status unknown_key(const std::string& key) {
  std::vector<std::string> names = {"id", "prompt", "messages", "ids"};
  for (const Known& known : kKnown) names.emplace_back(known.name);
  const std::string hint = option_hint(key, names);
  return invalid(
      format("unknown key '{}'; {}", quote(key, 64), hint.empty() ? "there are " + join(names, ", ") : hint));
}

Status take_option(const std::string& key, const Json& value, RequestRow& row) {
  const auto known = std::ranges::find(kKnown, key, &Known::name);
  if (known == std::end(kKnown)) return unknown_key(key);
  if (known->of == Of::kMessages && row.kind != RequestRow::Kind::kMessages)
    return invalid(format("'{}' belongs to messages, which this line lacks", key));
  if (!has_type(value, known->type))
    return invalid(format("'{}' is '{}', wanted {}", key, quote_json(value, 64), wanted(known->type)));
  if (known->of == Of::kAdapter) {
    row.adapter = value.get<std::string>();
    if (row.adapter.empty())
      return invalid("'adapter' is empty, wanted a path, or a name of option 'adapters'");
    return {};
  }
  row.options.insert_or_assign(key, option_value(value, known->type));
  row.is_constrained |= known->of == Of::kConstraint;
  if (key == "n") row.texts = value.get<int64_t>();
  return {};
}

}  // namespace

Result<RequestRow> parse_request_row(std::string_view line) {
  const std::string found = format("found '{}', wanted a JSON object", quote(line, 64));
  const Result<Json> object = parse_json(line, "");
  if (!object.ok()) {
    const std::string why(object.status().message().substr(2));
    return invalid(why.starts_with("the text is not JSON") ? format("{}: {}", found, why) : why);
  }
  if (!object->is_object()) return invalid(found + " such as {\"prompt\": \"Once upon\"}");
  RequestRow row;
  TSR_RETURN_IF_ERROR(take_prompt(*object, row));
  for (const auto& [key, value] : object->items()) {
    if (key == "id") row.id = value;
    if (key == "id" || key == "prompt" || key == "messages" || key == "ids") continue;
    TSR_RETURN_IF_ERROR(take_option(key, value, row));
  }
  return row;
}

}  // namespace tessera
