#include "text/chat_template.h"

#include <algorithm>
#include <array>
#include <chrono>

#include "graph/base/text.h"
#include "text/jinja/printing.h"

namespace tessera {
namespace {

using jinja::Rendering;
using jinja::Run;
using jinja::Source;
using jinja::Value;

Status fail(std::string message) { return Status(StatusCode::kInvalidArgument, std::move(message)); }

// Roles known to templates. They come from the application, and templates make control tokens
// of them ('<|' + role + '|>'), so their text counts as the template's. Other roles are data.
constexpr std::array<std::string_view, 14> kRoles = {
    "system", "developer", "user",        "assistant", "model",   "tool",  "function",
    "tools",  "ipython",   "observation", "document",  "context", "human", "environment"};
bool is_assistant(const Json& message) {
  const Json& role = message.at("role");
  return role == "assistant" || role == "model";
}

// Names of reasoning; templates read the first, or `thinking`.
constexpr std::array<std::string_view, 3> kReasoning = {"reasoning_content", "thinking", "reasoning"};

// transformers appends this to the continued message and cuts the text there.
constexpr std::string_view kContinueMark = "CONTINUE_FINAL_MESSAGE_TAG ";

// Messages as transformers passes them, with reasoning under known names. Members without a value are
// removed: for templates "tool_calls": [] would be a turn with calls, and transformers fails or drops it.
Json normalized(const Json& message) {
  Json kept = Json::object();
  for (const auto& [key, value] : message.items())
    if (!is_without_value(key, value)) kept[key] = value;
  for (const std::string_view name : kReasoning) {
    const auto found = kept.find(name);
    if (found == kept.end()) continue;
    const Json reasoning = *found;
    Json with = Json::object();
    with["thinking"] = reasoning;
    for (const auto& [key, value] : kept.items()) with[key] = value;
    with["reasoning_content"] = reasoning;
    return with;
  }
  return kept;
}

// An empty list of tools or documents becomes null, since templates test for presence.
const Json& none_if_empty(const Json& list) {
  static const Json none;
  return list.is_array() && list.empty() ? none : list;
}

// Approximate size of the value's text.
size_t count_text_bytes(const Json& value) {
  constexpr size_t kPunctuation = 4, kMostNumberBytes = 24;
  if (value.is_string()) return value.get_ref<const std::string&>().size() + kPunctuation;
  if (!value.is_structured()) return kMostNumberBytes;
  size_t bytes = kPunctuation;
  for (const auto& [key, item] : value.items())
    bytes += count_text_bytes(item) + (value.is_object() ? key.size() : 0) + kPunctuation;
  return bytes;
}

Status check_messages(const ChatRequest& request) {
  if (!request.messages.is_array() || request.messages.empty())
    return fail(
        format("messages: found {}, wanted an array of at least one message", quote_json(request.messages)));
  for (size_t i = 0; i < request.messages.size(); ++i) {
    const Json& message = request.messages[i];
    if (!message.is_object() || !message.contains("role") || !message["role"].is_string())
      return fail(format("message {} is {}, wanted an object with a text \"role\"", i, quote_json(message)));
  }
  for (const auto& [name, value] : {std::pair("tools", &request.tools), {"documents", &request.documents}})
    if (!value->is_null() && !value->is_array())
      return fail(format("{}: found {}, wanted an array", name, quote_json(*value)));
  if (!request.variables.is_object())
    return fail(format("variables: found {}, wanted an object", quote_json(request.variables)));
  for (const char* name : {"messages", "tools", "documents", "add_generation_prompt"})
    if (request.variables.contains(name)) return fail(format("variables: '{}' has a place of its own", name));
  if (request.continue_final_message && request.add_generation_prompt)
    return fail(
        "a message is either continued or begun: not both continue_final_message and add_generation_prompt");
  return {};
}

Result<Value> message_value(jinja::Budget& budget, const Json& message, Source source) {
  std::vector<std::pair<Value, Value>> items;
  for (const auto& [key, value] : message.items()) {
    const bool known =
        key == "role" && std::ranges::find(kRoles, value.get_ref<const std::string&>()) != kRoles.end();
    TSR_ASSIGN_OR_RETURN(Value made, jinja::from_json(budget, value, known ? jinja::kTemplate : source));
    items.emplace_back(jinja::Text::of(key, source), std::move(made));
  }
  return jinja::make_dict(budget, std::move(items));
}

// Adds the mark at the end of the last message's content. Returns the continued text.
Result<std::string> mark_end(Json& message) {
  Json& content = message["content"];
  if (content.is_string()) {
    std::string text = content.get<std::string>();
    content = text + std::string(kContinueMark);
    return text;
  }
  if (content.is_array())
    for (size_t i = content.size(); i-- > 0;)
      if (content[i].is_object() && content[i].contains("text") && content[i]["text"].is_string()) {
        std::string text = content[i]["text"].get<std::string>();
        content[i]["text"] = text + std::string(kContinueMark);
        return text;
      }
  return fail("continue_final_message: the last message has no text to continue");
}

std::string_view without_trailing_space(std::string_view text) {
  while (!text.empty() && (text.back() == ' ' || (text.back() >= '\t' && text.back() <= '\r')))
    text.remove_suffix(1);
  return text;
}

void truncate(Rendering& rendering, size_t size) {
  rendering.text.resize(size);
  while (!rendering.runs.empty() &&
         (rendering.runs.size() == 1 ? 0 : (rendering.runs.end() - 2)->end) >= size)
    rendering.runs.pop_back();
  if (!rendering.runs.empty()) rendering.runs.back().end = size;
}

Status truncate_at_mark(Rendering& rendering, std::string_view continued) {
  const std::string_view tag = trim(kContinueMark);
  const size_t at = rendering.text.rfind(tag);
  if (at == std::string::npos || rendering.text.find(trim(continued)) == std::string::npos)
    return fail("continue_final_message: the template does not show the end of the last message");
  const bool keeps_space = std::string_view(rendering.text).substr(at).starts_with(kContinueMark);
  truncate(rendering,
      keeps_space ? at : without_trailing_space(std::string_view(rendering.text).substr(0, at)).size());
  return {};
}

// Merges consecutive runs for which `holds`.
template <class Holds>
std::vector<TextRange> ranges(const std::vector<Run>& runs, Holds holds) {
  std::vector<TextRange> found;
  size_t begin = 0;
  for (const Run& run : runs) {
    if (holds(run.origin)) {
      if (!found.empty() && found.back().end == begin)
        found.back().end = run.end;
      else
        found.push_back({begin, run.end});
    }
    begin = run.end;
  }
  return found;
}

// Ranges inside `{% generation %}` by message. A part without message text belongs to the next answer.
std::vector<RenderedChat::Turn> generated_turns(const Json& messages, const Rendering& whole) {
  std::vector<RenderedChat::Turn> turns;
  size_t begin = 0;
  bool is_open = false, is_known = false;
  const auto next_answer = [&] {
    size_t at = turns.empty() ? 0 : turns.back().message + 1;
    while (at + 1 < messages.size() && !is_assistant(messages[at])) ++at;
    return std::min(at, messages.size() - 1);
  };
  for (const Run& run : whole.runs) {
    const bool is_own = run.origin.source >= jinja::kFirstMessage;
    const size_t source = is_own ? static_cast<size_t>(run.origin.source - jinja::kFirstMessage) : 0;
    if (!run.origin.generation) {
      is_open = false;
    } else if (!is_open || (is_own && is_known && turns.back().message != source)) {
      turns.push_back({{begin, run.end}, is_own ? source : next_answer()});
      is_open = true, is_known = is_own;
    } else {
      turns.back().range.end = run.end;
      if (is_own) turns.back().message = source, is_known = true;
    }
    begin = run.end;
  }
  return turns;
}

bool is_data(const jinja::Origin& origin) { return origin.source != jinja::kTemplate; }

size_t end_of_data(const Rendering& rendering) {
  const auto found = ranges(rendering.runs, is_data);
  return found.empty() ? 0 : found.back().end;
}

size_t common_prefix(std::string_view a, std::string_view b) {
  return static_cast<size_t>(std::ranges::mismatch(a, b).in1 - a.begin());
}

}  // namespace

bool is_without_value(std::string_view member, const Json& value) {
  if (value.is_null()) return true;
  if (member == "content" || member == "role") return false;
  return (value.is_string() && value.get_ref<const std::string&>().empty()) ||
         (value.is_structured() && value.empty());
}

std::map<std::string, std::string> special_texts(const TokenizerData& tokenizer) {
  std::map<std::string, std::string> texts;
  const std::pair<const char*, int32_t> tokens[] = {{"bos_token", tokenizer.bos},
                                                    {"eos_token", tokenizer.eos},
                                                    {"unk_token", tokenizer.unknown},
                                                    {"pad_token", tokenizer.pad}};
  for (const auto& [name, id] : tokens)
    if (id >= 0 && static_cast<size_t>(id) < tokenizer.tokens.size())
      texts[name] = tokenizer.tokens[static_cast<size_t>(id)];
  return texts;
}

Result<std::shared_ptr<const ChatTemplate>> ChatTemplate::create(std::string_view text,
                                                                 std::map<std::string, std::string> special) {
  std::shared_ptr<ChatTemplate> made(new ChatTemplate);
  auto parsed = jinja::Template::parse(text);
  if (!parsed.ok()) return parsed.status().with_context("chat template");
  made->template_ = std::move(parsed).value();
  made->text_ = text;
  made->special_ = std::move(special);
  return std::shared_ptr<const ChatTemplate>(std::move(made));
}

// Renders the first `count` messages.
Result<Rendering> ChatTemplate::run(const ChatRequest& request, size_t count,
                                    bool add_generation_prompt) const {
  std::vector<Json> messages;
  size_t bytes = text_.size();
  for (size_t i = 0; i < count; ++i) {
    messages.push_back(normalized(request.messages[i]));
    bytes += count_text_bytes(messages.back());
  }
  for (const Json* value : {&request.tools, &request.documents, &request.variables})
    bytes += count_text_bytes(*value);
  std::string continued;
  if (request.continue_final_message) {
    TSR_ASSIGN_OR_RETURN(continued, mark_end(messages.back()));
  }
  const auto make_variables = [&](jinja::Budget& budget) -> Result<jinja::Template::Variables> {
    jinja::Template::Variables variables;
    for (const auto& [name, text] : special_) variables.emplace_back(name, jinja::Text::of(text));
    const auto set = [&variables](std::string_view name, Value value) {
      std::erase_if(variables, [name](const auto& each) { return each.first == name; });
      variables.emplace_back(name, std::move(value));
    };
    for (const auto& [name, value] : request.variables.items()) {
      TSR_ASSIGN_OR_RETURN(Value made, jinja::from_json(budget, value, jinja::kData));
      set(name, std::move(made));
    }
    std::vector<Value> list;
    for (size_t i = 0; i < count; ++i) {
      TSR_ASSIGN_OR_RETURN(Value made,
                           message_value(budget, messages[i], jinja::kFirstMessage + static_cast<Source>(i)));
      list.push_back(std::move(made));
    }
    TSR_ASSIGN_OR_RETURN(Value all, jinja::make_list(budget, std::move(list)));
    set("messages", std::move(all));
    TSR_ASSIGN_OR_RETURN(Value tools, jinja::from_json(budget, none_if_empty(request.tools), jinja::kData));
    set("tools", std::move(tools));
    TSR_ASSIGN_OR_RETURN(Value documents, jinja::from_json(budget, none_if_empty(request.documents), jinja::kData));
    set("documents", std::move(documents));
    set("add_generation_prompt", add_generation_prompt);
    return variables;
  };
  const int64_t now_s = request.now_s.value_or(
      std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch())
          .count());
  Result<Rendering> rendering = template_->render(make_variables, bytes, now_s);
  if (!rendering.ok()) return rendering.status().with_context("chat template");
  if (request.continue_final_message) TSR_RETURN_IF_ERROR(truncate_at_mark(*rendering, continued));
  return rendering;
}

Result<RenderedChat> ChatTemplate::render(const ChatRequest& request) const {
  TSR_RETURN_IF_ERROR(check_messages(request));
  TSR_ASSIGN_OR_RETURN(Rendering rendering,
                       run(request, request.messages.size(), request.add_generation_prompt));
  std::vector<TextRange> data = ranges(rendering.runs, is_data);
  return RenderedChat{std::move(rendering.text), std::move(data), {}, {}};
}

Result<RenderedChat> ChatTemplate::render_with_spans(const ChatRequest& request) const {
  TSR_RETURN_IF_ERROR(check_messages(request));
  if (request.continue_final_message)
    return fail("spans of the assistant and continue_final_message exclude each other");
  RenderedChat chat;
  TSR_RETURN_IF_ERROR(jinja::run_with_stack([&]() -> Status {  // one thread for all renderings
    TSR_ASSIGN_OR_RETURN(chat, find_spans(request));
    return {};
  }));
  return chat;
}

Result<RenderedChat> ChatTemplate::find_spans(const ChatRequest& request) const {
  TSR_ASSIGN_OR_RETURN(const Rendering whole,
                       run(request, request.messages.size(), request.add_generation_prompt));
  RenderedChat chat{whole.text, ranges(whole.runs, is_data), {}, {}};
  if (has_generation()) {
    chat.assistant = ranges(whole.runs, [](const jinja::Origin& origin) { return origin.generation; });
    chat.turns = generated_turns(request.messages, whole);
    return chat;
  }
  for (size_t i = 0; i < request.messages.size(); ++i) {
    if (!is_assistant(request.messages[i])) continue;
    TSR_ASSIGN_OR_RETURN(const TextRange answer, find_answer(request, whole, i));
    if (answer.begin >= answer.end) continue;
    const size_t begin = std::max(answer.begin, chat.turns.empty() ? 0 : chat.turns.back().range.end);
    if (begin < answer.end) chat.turns.push_back({{begin, answer.end}, i});
    if (!chat.assistant.empty() && answer.begin <= chat.assistant.back().end)
      chat.assistant.back().end = std::max(answer.end, chat.assistant.back().end);
    else
      chat.assistant.push_back(answer);
  }
  return chat;
}

// An answer begins where its generation prompt ends, and ends where the conversation
// up to it does. If the template later shows it differently (without reasoning, say),
// it is found by the origin of its characters, between the same texts of the template.
Result<TextRange> ChatTemplate::find_answer(const ChatRequest& request, const Rendering& whole,
                                            size_t message) const {
  const auto with_context = [message](const Status& status) {
    return status.with_context(
        format("the part of message {} that the assistant says is not known: up to it", message));
  };
  Result<Rendering> prompt = run(request, message, true);
  if (!prompt.ok()) return with_context(prompt.status());
  Result<Rendering> answered = run(request, message + 1, false);
  if (!answered.ok()) return with_context(answered.status());
  const Source source = jinja::kFirstMessage + static_cast<Source>(message);
  const auto is_own = [source](const jinja::Origin& origin) { return origin.source == source; };
  const std::vector<TextRange> own = ranges(whole.runs, is_own);
  const std::string_view text = whole.text;
  const size_t first_own = own.empty() ? text.size() : own.front().begin;

  const size_t common = common_prefix(prompt->text, text);
  if (text.starts_with(answered->text) && common >= end_of_data(*prompt))
    return TextRange{std::min({common, first_own, answered->text.size()}), answered->text.size()};

  const std::vector<TextRange> own_answered = ranges(answered->runs, is_own);
  size_t end_size = 0;
  bool is_known = false;
  if (!own.empty() && !own_answered.empty()) {
    const std::string_view behind = text.substr(own.back().end);
    const std::string_view ending = std::string_view(answered->text).substr(own_answered.back().end);
    end_size = common_prefix(ending, behind);
    is_known = end_size == ending.size();
    // If only the last turn's end is longer, the common part ends with a token: "<|end|>" of "<|end|></s>".
    if (!is_known) end_size = behind.substr(0, end_size).find_last_of("\n>]") + 1;
  }
  if (!is_known && end_size == 0)
    return Status(StatusCode::kUnsupported, format("the template shows message {} otherwise when messages "
                                                   "follow it, so the part that the assistant says "
                                                   "is not known: mark it in the template with {}",
                                                   message, "'{% generation %}'"));
  size_t before = 0;  // end of the data before it
  for (const TextRange& range : ranges(whole.runs, is_data))
    if (range.end <= first_own) before = range.end;
  const std::string_view header = std::string_view(prompt->text).substr(end_of_data(*prompt));
  const size_t begin = before + common_prefix(header, text.substr(before, first_own - before));
  return TextRange{begin, own.back().end + end_size};
}

}  // namespace tessera
