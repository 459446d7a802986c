// The kind follows from the fields of the row. Each kind takes its fields; fields left over are reported, those that would
// change training are refused.
#include "serialize/training_data/row.h"

#include <algorithm>
#include <array>
#include <set>
#include <utility>

#include "graph/base/quote.h"
#include "graph/base/text.h"
#include "serialize/training_data/instruction_row.h"
#include "text/chat_template.h"

namespace tessera {
namespace {

constexpr std::array<std::string_view, kRowKinds> kNames = {"text",     "prompt",     "prompt_completion",
                                                            "messages", "preference", "unpaired"};

Status fail(std::string message) { return Status(StatusCode::kInvalidArgument, std::move(message)); }

// Refused: fields that would change training and are unsupported.
struct Refused {
  std::string_view field, remedy;
};
constexpr Refused kRefused[] = {
    {"image", "rows of text alone"},
    {"images", "rows of text alone"},
    {"video", "rows of text alone"},
    {"videos", "rows of text alone"},
    {"audio", "rows of text alone"},
    {"audios", "rows of text alone"},
    {"input_ids", "texts (rows of token ids come from memory: tsr_dataset_new_rows)"},
    {"attention_mask", "texts (rows of token ids come from memory: tsr_dataset_new_rows)"},
    {"labels", "one of the kinds text, prompt, prompt_completion, messages, preference and unpaired"},
    {"completions", "one of the kinds text, prompt, prompt_completion, messages, preference and unpaired"},
    {"functions", "'tools'"},
    {"function_call", "'tools', with calls in messages"},
    {"response_format", "rows without it"},
    {"tool_choice", "rows without it"},
    {"chat_template", "the template as option 'template', the same for all rows"},
    {"system", "a message of role 'system'"},
    {"instruction", "it without 'prompt', 'completion' and 'messages'"},
    {"weight", "weights of files (option 'files'), or of assistant's messages"},
};

bool has(const Json& object, std::string_view field) {
  const auto found = object.find(field);
  return found != object.end() && !found->is_null();
}

// Empty values count as absent, since tools write them.
bool has_value(const Json& object, std::string_view field) {
  const auto found = object.find(field);
  return found != object.end() && !is_without_value(field, *found);
}

std::string fields_text(const Json& object) {
  std::vector<std::string> names;
  for (const auto& [name, value] : object.items()) names.push_back("'" + name + "'");
  return names.empty() ? "no fields" : "fields " + quote(join(names, ", "), 300);
}

std::optional<RowKind> recognised(const Json& object) {
  if (has(object, "preferred_output") || has(object, "non_preferred_output") || has(object, "chosen") ||
      has(object, "rejected"))
    return RowKind::kPreference;
  if (has(object, "messages") || has(object, "conversations")) return RowKind::kMessages;
  if (has(object, "completion"))
    return has(object, "label") ? RowKind::kUnpaired : RowKind::kPromptCompletion;
  if (has(object, "prompt")) return RowKind::kPrompt;
  if (has(object, "text")) return RowKind::kText;
  return std::nullopt;
}

// FieldReader: takes fields of an object one by one; the rest is unknown.
class FieldReader {
 public:
  explicit FieldReader(const Json& object) : object_(object) {}

  const Json* take(std::string_view field) {
    taken_.insert(std::string(field));
    const auto found = object_.find(field);
    return found == object_.end() || found->is_null() ? nullptr : &*found;
  }
  Result<const Json*> required(std::string_view field) {
    if (const Json* found = take(field)) return found;
    return fail(format("field '{}' is missing; the row has {}", field, fields_text(object_)));
  }
  std::vector<std::string> left() const {
    std::vector<std::string> names;
    for (const auto& [name, value] : object_.items())
      if (!taken_.contains(name)) names.push_back(name);
    return names;
  }

 private:
  const Json& object_;
  std::set<std::string, std::less<>> taken_;
};

Status wrong(std::string_view where, const Json& found, std::string_view wanted) {
  return fail(format("{} is {}, wanted {}", where, quote_json(found), wanted));
}

// A text, or an array of text parts, as one text.
Result<Json> content_text(const Json& content, std::string_view where) {
  if (content.is_string()) return content;
  if (!content.is_array())
    return wrong(where, content, "a text or an array of parts {\"type\": \"text\", \"text\": ...}");
  std::string text;
  for (const Json& part : content) {
    if (!part.is_object() || !part.contains("text") || !part["text"].is_string() ||
        (part.contains("type") && part["type"] != "text"))
      return wrong(format("a part of {}", where), part,
                   "{\"type\": \"text\", \"text\": ...}: text alone is learnt");
    text += part["text"].get_ref<const std::string&>();
  }
  return Json(std::move(text));
}

// Tool calls with arguments as objects, for templates; OpenAI's rows have text. Ids must be unique.
Result<Json> checked_calls(const Json& calls, std::string_view where, std::set<std::string>& ids,
                           bool& has_text) {
  if (!calls.is_array() || calls.empty()) return wrong(where, calls, "an array of calls");
  Json checked = Json::array();
  for (const Json& call : calls) {
    if (!call.is_object()) return wrong(format("a call of {}", where), call, "an object");
    Json made = call;
    Json& function = made.contains("function") ? made["function"] : made;
    if (!function.is_object() || !function.contains("name") || !function["name"].is_string())
      return wrong(format("a call of {}", where), call,
                   "{\"type\": \"function\", \"function\": {\"name\", \"arguments\"}}");
    if (const auto id = made.find("id");
        id != made.end() && id->is_string() && !ids.insert(id->get<std::string>()).second)
      return fail(format("{}: the id {} is that of two calls", where, quote_json(*id)));
    if (const auto found = function.find("arguments"); found != function.end() && found->is_string()) {
      Result<Json> arguments = parse_json(found->get_ref<const std::string&>(), "arguments");
      if (!arguments.ok())
        return fail(format("'arguments' of a call of {}: {}", where, arguments.status().message()));
      if (!arguments->is_object())
        return wrong(format("'arguments' of a call of {}", where), *found,
                     "an object, or JSON text that is one");
      *found = std::move(*arguments);
      has_text = true;
    }
    checked.push_back(std::move(made));
  }
  return checked;
}

constexpr double kMostWeight = 1e6;

// MessageReader: the messages of `given`, after `before` others. Extracts weights, if the kind has them.
class MessageReader {
 public:
  explicit MessageReader(TrainingRow& row) : row_(&row) {}

  Result<Json> read(const Json& given, std::string_view field, size_t before, bool may_have_weights) {
    if (!given.is_array()) return wrong(format("field '{}'", field), given, "an array of messages");
    if (given.empty())
      return fail(format("field '{}' is an empty array, wanted at least one message", field));
    Json messages = Json::array();
    for (size_t i = 0; i < given.size(); ++i) {
      TSR_ASSIGN_OR_RETURN(Json message, checked(given[i], format("message {} of '{}'", i, field), before + i,
                                                 may_have_weights));
      messages.push_back(std::move(message));
    }
    return messages;
  }

 private:
  Result<Json> checked(const Json& given, const std::string& where, size_t number, bool may_have_weights) {
    if (!given.is_object() || !given.contains("role") || !given["role"].is_string())
      return wrong(where, given, "an object with a text 'role'");
    Json message = Json::object();
    for (const auto& [name, value] : given.items())
      if (name == "content" || !is_without_value(name, value)) message[name] = value;
    const std::string role = given["role"].get<std::string>();
    const bool is_assistant = role == "assistant" || role == "model";
    for (const char* field : {"function_call", "audio", "images"})
      if (message.contains(field))
        return fail(format("{} has '{}', which is not learnt: wanted text and 'tool_calls'", where, field));
    if (const auto weight = message.find("weight"); weight != message.end()) {
      if (!may_have_weights || !is_assistant)
        return fail(
            format("{} has a weight: wanted on messages of the assistant in kind messages alone", where));
      const double value = weight->is_number() ? weight->get<double>() : -1;
      if (!(value >= 0 && value <= kMostWeight))
        return wrong(format("'weight' of {}", where), *weight, format("a number from 0 to {}", kMostWeight));
      if (value != 1) row_->weights.push_back({number, static_cast<float>(value)});
      message.erase("weight");
    }
    if (has(given, "content")) {
      TSR_ASSIGN_OR_RETURN(message["content"],
                           content_text(given["content"], format("'content' of {}", where)));
    }
    if (message.contains("tool_calls")) {
      if (!is_assistant)
        return fail(format("{} has 'tool_calls', and role '{}': wanted role assistant", where, role));
      TSR_ASSIGN_OR_RETURN(message["tool_calls"],
                           checked_calls(message["tool_calls"], format("'tool_calls' of {}", where), call_ids_,
                                         row_->has_text_arguments));
    } else if (is_assistant && (!has(given, "content") || message["content"] == "")) {
      return fail(format("{} is an empty answer: wanted 'content' or 'tool_calls'", where));
    } else if (!has(given, "content")) {
      return fail(format("{} has no 'content'; it is {}", where, quote_json(given)));
    }
    if (role == "tool" && message.contains("tool_call_id") && given["tool_call_id"].is_string() &&
        !call_ids_.contains(given["tool_call_id"].get<std::string>()) && !call_ids_.empty())
      return fail(format("{} answers the call {}, which no message before it makes", where,
                         quote_json(given["tool_call_id"])));
    return message;
  }

  TrainingRow* row_;
  std::set<std::string> call_ids_;
};

// ShareGPT's {"from", "value"} as messages.
Result<Json> from_conversations(const Json& given) {
  if (!given.is_array()) return wrong("field 'conversations'", given, "an array of messages");
  Json messages = Json::array();
  for (const Json& turn : given) {
    if (!turn.is_object() || !turn.contains("from") || !turn["from"].is_string()) {
      messages.push_back(turn);
      continue;
    }
    const std::string from = turn["from"].get<std::string>();
    Json message = {{"role", from == "human" ? "user" : from == "gpt" ? "assistant" : from}};
    if (turn.contains("value")) message["content"] = turn["value"];
    for (const auto& [name, value] : turn.items())
      if (name != "from" && name != "value") message[name] = value;
    messages.push_back(std::move(message));
  }
  return messages;
}

// ValueReader: a text or messages, consistent with the row's other values.
class ValueReader {
 public:
  ValueReader(TrainingRow& row, FieldReader& fields) : row_(row), fields_(fields), messages_(row) {}

  Status read(std::string_view field, Json& into, bool may_be_empty, bool may_have_weights) {
    TSR_ASSIGN_OR_RETURN(const Json* const found, fields_.required(field));
    return take(*found, field, into, may_be_empty, may_have_weights);
  }
  Status take(const Json& found, std::string_view field, Json& into, bool may_be_empty,
              bool may_have_weights) {
    if (!found.is_string() && !found.is_array())
      return wrong(format("field '{}'", field), found, "a text or an array of messages");
    if (has_form_ && row_.is_chat != found.is_array())
      return wrong(format("field '{}'", field), found,
                   row_.is_chat ? "messages, as the row's other fields have"
                                : "a text, as the row's other fields have");
    has_form_ = true;
    row_.is_chat = found.is_array();
    if (row_.is_chat) {
      MessageReader messages = messages_;  // each answer continues the prompt's calls
      TSR_ASSIGN_OR_RETURN(into, messages.read(found, field, row_.prompt.is_array() ? row_.prompt.size() : 0,
                                               may_have_weights));
      if (&into == &row_.prompt) messages_ = std::move(messages);
      return {};
    }
    if (!may_be_empty && found.get_ref<const std::string&>().empty())
      return fail(format("field '{}' is empty: there is nothing to learn", field));
    into = found;
    return {};
  }

 private:
  TrainingRow& row_;
  FieldReader& fields_;
  MessageReader messages_;
  bool has_form_ = false;
};

// Bytes of a character truncated by an end at `size`.
size_t at_character(std::string_view text, size_t size) {
  while (size > 0 && size < text.size() && (static_cast<unsigned char>(text[size]) & 0xC0) == 0x80) --size;
  return size;
}

// Makes the answers' common beginning the prompt, as TRL does:
// whole messages, or text without the space before the answers.
Status extract_prompt(TrainingRow& row) {
  if (row.completion == row.rejected)
    return fail("'chosen' and 'rejected' are equal: there is nothing to prefer");
  if (row.is_chat) {
    const size_t least = std::min(row.completion.size(), row.rejected.size());
    size_t common = 0;
    while (common < least && row.completion[common] == row.rejected[common]) ++common;
    common = std::min(common, least - 1);
    if (common == 0)
      return fail(
          "'chosen' and 'rejected' begin with different messages: wanted a common beginning, or 'prompt'");
    Json rest[2];
    for (Json& each : rest) each = Json::array();
    row.prompt = Json::array();
    for (size_t i = 0; i < common; ++i) row.prompt.push_back(row.completion[i]);
    for (size_t i = common; i < row.completion.size(); ++i) rest[0].push_back(row.completion[i]);
    for (size_t i = common; i < row.rejected.size(); ++i) rest[1].push_back(row.rejected[i]);
    row.completion = std::move(rest[0]), row.rejected = std::move(rest[1]);
    return {};
  }
  const std::string chosen = row.completion.get<std::string>(), rejected = row.rejected.get<std::string>();
  auto common = static_cast<size_t>(std::ranges::mismatch(chosen, rejected).in1 - chosen.begin());
  const size_t least = std::min(chosen.size(), rejected.size());
  if (common == least) {
    common = at_character(chosen.size() == least ? chosen : rejected, least - 1);
  } else {
    common = std::min(at_character(chosen, common), at_character(rejected, common));
    if (common > 0 && chosen[common - 1] == ' ') --common;
  }
  row.prompt = chosen.substr(0, common);
  row.completion = chosen.substr(common), row.rejected = rejected.substr(common);
  return {};
}

Status read_tools(TrainingRow& row, FieldReader& fields) {
  const Json* tools = fields.take("tools");
  Json parsed;
  if (tools != nullptr && tools->is_string()) {
    Result<Json> read = parse_json(tools->get_ref<const std::string&>(), "field 'tools'");
    if (!read.ok()) return fail(std::string(read.status().message()));
    parsed = std::move(*read);
    tools = parsed.is_null() ? nullptr : &parsed;
  }
  if (tools != nullptr) {
    if (!tools->is_array() || std::ranges::any_of(*tools, [](const Json& tool) { return !tool.is_object(); }))
      return wrong("field 'tools'", *tools, "an array of objects, or JSON text that is one");
    if (!tools->empty()) row.tools = *tools;
  }
  if (const Json* parallel = fields.take("parallel_tool_calls")) {
    if (!parallel->is_boolean()) return wrong("field 'parallel_tool_calls'", *parallel, "true or false");
    row.variables["parallel_tool_calls"] = *parallel;
  }
  return {};
}

Status read_for_template(TrainingRow& row, FieldReader& fields) {
  row.variables = Json::object();
  TSR_RETURN_IF_ERROR(read_tools(row, fields));
  if (const Json* documents = fields.take("documents")) {
    if (!documents->is_array()) return wrong("field 'documents'", *documents, "an array");
    if (!documents->empty()) row.documents = *documents;
  }
  if (const Json* variables = fields.take("chat_template_kwargs")) {
    if (!variables->is_object()) return wrong("field 'chat_template_kwargs'", *variables, "an object");
    for (const auto& [name, value] : variables->items()) {
      for (const std::string_view own :
           {"messages", "tools", "documents", "add_generation_prompt", "chat_template"})
        if (name == own)
          return fail(format("field 'chat_template_kwargs' has '{}', which has a place of its own", name));
      row.variables[name] = value;
    }
  }
  return {};
}

// Reads OpenAI's preferences.
Status read_openai_preference(TrainingRow& row, FieldReader& fields, ValueReader& values) {
  TSR_ASSIGN_OR_RETURN(const Json* const input, fields.required("input"));
  if (!input->is_object()) return wrong("field 'input'", *input, "an object with 'messages'");
  FieldReader inner(*input);
  TSR_ASSIGN_OR_RETURN(const Json* const messages, inner.required("messages"));
  TSR_RETURN_IF_ERROR(values.take(*messages, "messages", row.prompt, false, false));
  TSR_RETURN_IF_ERROR(read_tools(row, inner));
  for (const std::string& left : inner.left())
    return fail(format("field 'input' has '{}', wanted 'messages', 'tools' and 'parallel_tool_calls'", left));
  TSR_RETURN_IF_ERROR(values.read("preferred_output", row.completion, false, false));
  return values.read("non_preferred_output", row.rejected, false, false);
}

Status read_preference(const Json& object, TrainingRow& row, FieldReader& fields, ValueReader& values) {
  if (has(object, "preferred_output") || has(object, "non_preferred_output"))
    return read_openai_preference(row, fields, values);
  const bool is_explicit = has(object, "prompt");
  if (is_explicit) TSR_RETURN_IF_ERROR(values.read("prompt", row.prompt, true, false));
  TSR_RETURN_IF_ERROR(values.read("chosen", row.completion, false, false));
  TSR_RETURN_IF_ERROR(values.read("rejected", row.rejected, false, false));
  if (!is_explicit) return extract_prompt(row);
  if (row.completion == row.rejected)
    return fail("'chosen' and 'rejected' are equal: there is nothing to prefer");
  return {};
}

Status read_messages(const Json& object, TrainingRow& row, FieldReader& fields, ValueReader& values) {
  if (has(object, "messages") || !has(object, "conversations")) {
    TSR_ASSIGN_OR_RETURN(const Json* const messages, fields.required("messages"));
    if (!messages->is_array()) return wrong("field 'messages'", *messages, "an array of messages");
    return values.take(*messages, "messages", row.completion, false, true);
  }
  TSR_ASSIGN_OR_RETURN(const Json messages, from_conversations(*fields.take("conversations")));
  return values.take(messages, "conversations", row.completion, false, true);
}

Status read_values(const Json& object, TrainingRow& row, FieldReader& fields) {
  ValueReader values(row, fields);
  switch (row.kind) {
    case RowKind::kText: {
      TSR_ASSIGN_OR_RETURN(const Json* const text, fields.required("text"));
      if (!text->is_string()) return wrong("field 'text'", *text, "a text");
      return values.take(*text, "text", row.completion, false, false);
    }
    case RowKind::kMessages: return read_messages(object, row, fields, values);
    case RowKind::kPreference: return read_preference(object, row, fields, values);
    case RowKind::kPrompt: return values.read("prompt", row.prompt, false, false);
    case RowKind::kPromptCompletion:
    case RowKind::kUnpaired:
      TSR_RETURN_IF_ERROR(values.read("prompt", row.prompt, true, false));
      TSR_RETURN_IF_ERROR(values.read("completion", row.completion, false, false));
      if (row.kind == RowKind::kUnpaired) {
        TSR_ASSIGN_OR_RETURN(const Json* const label, fields.required("label"));
        if (!label->is_boolean()) return wrong("field 'label'", *label, "true or false");
        row.label = label->get<bool>();
      }
      return {};
  }
  return {};
}

}  // namespace

std::string_view name_of(RowKind kind) { return kNames[static_cast<size_t>(kind)]; }

std::optional<RowKind> row_kind_of(std::string_view name) {
  const auto found = std::ranges::find(kNames, name);
  if (found == kNames.end()) return std::nullopt;
  return static_cast<RowKind>(found - kNames.begin());
}

Result<TrainingRow> parse_row(const Json& object, std::optional<RowKind> wanted) {
  if (!object.is_object()) return wrong("the row", object, "an object {\"messages\": ...}, say");
  TSR_ASSIGN_OR_RETURN(const std::optional<Json> made,
                       instruction_as_messages(object, wanted == RowKind::kMessages));
  if (made) return parse_row(*made, wanted);
  TrainingRow row;
  FieldReader fields(object);
  const std::optional<RowKind> kind = wanted ? wanted : recognised(object);
  for (const Refused& refused : kRefused)
    if (has_value(object, refused.field))
      return fail(
          format("the row has the field '{}', which would change what is learnt and is not read: wanted {}",
                 refused.field, refused.remedy));
  if (!kind)
    return fail(
        format("the row has {}: wanted 'text', 'messages', 'instruction' with 'output', 'prompt' with or "
               "without 'completion' (and 'label'), "
               "'chosen' and 'rejected', or OpenAI's 'input', 'preferred_output' and 'non_preferred_output'",
               fields_text(object)));
  row.kind = *kind;
  TSR_RETURN_IF_ERROR(read_for_template(row, fields));
  TSR_RETURN_IF_ERROR(read_values(object, row, fields));
  if (row.variables.empty()) row.variables = Json();
  if (!row.is_chat)
    for (const auto& [name, value] : {std::pair("tools", &row.tools),
                                      {"documents", &row.documents},
                                      {"chat_template_kwargs", &row.variables}})
      if (!value->is_null())
        return fail(format("the row has '{}' and texts without a template: wanted messages", name));
  row.ignored = fields.left();
  return row;
}

Json with_text_arguments(const Json& messages) {
  Json changed = messages;
  for (Json& message : changed) {
    const auto calls = message.find("tool_calls");
    if (calls == message.end() || !calls->is_array()) continue;
    for (Json& call : *calls) {
      Json& function = call.contains("function") ? call["function"] : call;
      if (function.contains("arguments") && !function["arguments"].is_string())
        function["arguments"] = dump(function["arguments"]);
    }
  }
  return changed;
}

}  // namespace tessera
