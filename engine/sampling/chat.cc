#include "engine/sampling/chat.h"

#include <algorithm>

#include "engine/base/runtime.h"
#include "graph/base/text.h"
#include "graph/base/utf8.h"
#include "text/answer/marker.h"
#include "text/answer/stream.h"
#include "text/assistant_tokens.h"

namespace tessera {
namespace {

Result<Json> read_json(OptionReader& reader, std::string_view key, Json otherwise) {
  const std::string text = reader.text(key);
  if (text.empty()) return otherwise;
  Result<Json> json = parse_json(text, format("option '{}'", key));
  if (!json.ok()) return Status(StatusCode::kInvalidArgument, std::string(json.status().message()));
  return json;
}

Result<ChatRequest> read_request(std::string_view messages, const Options& options) {
  OptionReader reader(options, "chat");
  ChatRequest request;
  TSR_ASSIGN_OR_RETURN(request.tools, read_json(reader, "tools", Json()));
  TSR_ASSIGN_OR_RETURN(request.documents, read_json(reader, "documents", Json()));
  TSR_ASSIGN_OR_RETURN(request.variables, read_json(reader, "variables", Json::object()));
  request.add_generation_prompt = reader.flag("add_generation_prompt", false);
  request.continue_final_message = reader.flag("continue_final_message", false);
  if (reader.has("now")) request.now_s = reader.i64("now", 0);
  TSR_RETURN_IF_ERROR(reader.finish());
  Result<Json> parsed = parse_json(messages, "messages");
  if (!parsed.ok()) return Status(StatusCode::kInvalidArgument, std::string(parsed.status().message()));
  request.messages = std::move(parsed).value();
  return request;
}

Json json_of(const std::vector<TextRange>& ranges) {
  Json list = Json::array();
  for (const TextRange& range : ranges) list.push_back({range.begin, range.end});
  return list;
}

}  // namespace

Result<std::shared_ptr<const Chat>> Chat::create(const SharedModel& model, const Options& options) {
  OptionReader reader(options, "chat");
  const std::string name = reader.text("name"), given = reader.text("template");
  TSR_RETURN_IF_ERROR(reader.finish());
  if (!name.empty() && !given.empty())
    return Status(StatusCode::kInvalidArgument, "chat: give option 'name' or 'template', not both");
  const std::string key = std::string(kChatTemplateKey) + (name.empty() ? "" : "." + name);
  const std::string text = given.empty() ? model.metadata(key) : given;
  if (text.empty())
    return Status(
        StatusCode::kNotFound,
        format("the model has no chat template (metadata '{}'): give one as option 'template', or set it "
               "with tsr_model_set_metadata",
               key));
  return create(text, model.tokenizer());
}

Result<std::shared_ptr<const Chat>> Chat::create(std::string_view text,
                                                 std::shared_ptr<const Tokenizer> tokenizer) {
  std::shared_ptr<Chat> chat(new Chat);
  TSR_ASSIGN_OR_RETURN(chat->template_,
                       ChatTemplate::create(text, tokenizer ? special_texts(tokenizer->data())
                                                            : std::map<std::string, std::string>()));
  chat->tokenizer_ = std::move(tokenizer);
  return std::shared_ptr<const Chat>(std::move(chat));
}

Result<std::string> Chat::render(std::string_view messages, const Options& options) const {
  TSR_ASSIGN_OR_RETURN(const ChatRequest request, read_request(messages, options));
  TSR_ASSIGN_OR_RETURN(RenderedChat rendered, template_->render(request));
  return std::move(rendered.text);
}

Result<std::string> Chat::render_ranges_json(std::string_view messages, const Options& options) const {
  TSR_ASSIGN_OR_RETURN(const ChatRequest request, read_request(messages, options));
  TSR_ASSIGN_OR_RETURN(const RenderedChat rendered, template_->render(request));
  Json json = {{"text", rendered.text}, {"data", json_of(rendered.data)}};
  const Result<RenderedChat> spans = template_->render_with_spans(request);
  json["assistant"] = spans.ok() ? json_of(spans.value().assistant) : Json();
  if (!spans.ok()) json["assistant_reason"] = spans.status().message();
  return dump(json);
}

Result<ChatTokens> Chat::encode(std::string_view messages, const Options& options,
                                bool with_assistant) const {
  if (!tokenizer_)
    return Status(StatusCode::kFailedPrecondition,
                  "chat: there is no tokenizer: give the model one, or render text");
  TSR_ASSIGN_OR_RETURN(const ChatRequest request, read_request(messages, options));
  TSR_ASSIGN_OR_RETURN(RenderedChat rendered,
                       with_assistant ? template_->render_with_spans(request) : template_->render(request));
  const EncodeOptions encode_options{true, rendered.data};
  TSR_ASSIGN_OR_RETURN(Encoding encoding, tokenizer_->encode_with_begins(rendered.text, encode_options));
  ChatTokens tokens;
  if (with_assistant)
    tokens.assistant = mark_assistant_tokens(encoding, rendered.text.size(), rendered.assistant, *tokenizer_);
  tokens.ids = std::move(encoding.ids);
  tokens.text = std::move(rendered.text);
  return tokens;
}

Result<std::string> Chat::fit_json(std::string_view messages, const Options& options,
                                   int64_t most_tokens) const {
  Result<Json> parsed = parse_json(messages, "messages");
  if (!parsed.ok()) return Status(StatusCode::kInvalidArgument, std::string(parsed.status().message()));
  const Json& all = *parsed;
  const auto role_of = [&](size_t at) -> std::string {
    const auto role = all[at].is_object() ? all[at].find("role") : all[at].end();
    return all[at].is_object() && role != all[at].end() && role->is_string() ? role->get<std::string>() : "";
  };
  // Turns begin after the instructions and at every user message.
  size_t head = 0;
  std::vector<size_t> turns;
  if (all.is_array()) {
    while (head < all.size() && (role_of(head) == "system" || role_of(head) == "developer")) ++head;
    for (size_t i = head; i < all.size(); ++i)
      if (i == head || role_of(i) == "user") turns.push_back(i);
  }
  const auto without = [&](size_t dropped) {
    if (dropped == 0) return all;
    Json kept = Json::array();
    for (size_t i = 0; i < all.size(); ++i)
      if (i < head || i >= turns[dropped]) kept.push_back(all[i]);
    return kept;
  };
  const auto count = [&](size_t dropped) -> Result<int64_t> {
    TSR_ASSIGN_OR_RETURN(const ChatTokens tokens, encode(dump(without(dropped)), options, false));
    return static_cast<int64_t>(tokens.ids.size());
  };
  TSR_ASSIGN_OR_RETURN(int64_t tokens, count(0));
  size_t dropped = 0;
  if (tokens > most_tokens) {
    const size_t last = turns.empty() ? 0 : turns.size() - 1;
    TSR_ASSIGN_OR_RETURN(tokens, count(last));
    if (tokens > most_tokens) {
      const char* const what = turns.empty() ? "the system message"
                               : head > 0    ? "the last turn with the system message"
                                             : "the last turn";
      return Status(StatusCode::kInvalidArgument,
                    format("{} has {} tokens, and {} are left for it: shorten it, or give more context", what,
                           tokens, most_tokens));
    }
    size_t too_few = 0;
    for (dropped = last; dropped - too_few > 1;) {  // dropping `too_few` turns leaves too many tokens
      const size_t middle = too_few + (dropped - too_few) / 2;
      TSR_ASSIGN_OR_RETURN(const int64_t left, count(middle));
      (left > most_tokens ? too_few : dropped) = middle;
      if (left <= most_tokens) tokens = left;
    }
  }
  return dump(Json{{"messages", without(dropped)},
                   {"dropped", dropped == 0 ? 0 : turns[dropped] - head},
                   {"tokens", tokens}});
}

const AnswerForm& Chat::answer_form() const {
  std::call_once(form_once_, [this] { form_ = AnswerForm::of(*template_); });
  return form_;
}

Result<std::string> Chat::parse(std::string_view text, const Options& options) const {
  OptionReader reader(options, "chat");
  const AnswerForm& form = answer_form();
  AnswerContext context;
  TSR_ASSIGN_OR_RETURN(context.tools, read_json(reader, "tools", Json()));
  context.opening = reader.has("prompt") ? form.opening_of(reader.text("prompt")) : form.default_opening;
  if (reader.has("in_thinking")) {
    const bool in_thinking = reader.flag("in_thinking", false);
    context.opening = in_thinking && !form.reasoning.empty() ? form.reasoning[0].open : "";
    if (in_thinking && form.reasoning.empty())
      return Status(StatusCode::kInvalidArgument,
                    "chat: option 'in_thinking' is 1, but the template knows no reasoning");
  }
  const bool is_partial = reader.flag("partial", false);
  const int64_t seed = reader.has("seed") ? reader.i64("seed", 0) : Runtime::draw_seed();
  TSR_RETURN_IF_ERROR(reader.finish());
  AnswerStream stream(form, std::move(context));
  (void)stream.add(is_partial ? text.substr(0, text.size() - unfinished_utf8(text)) : text);
  return dump(message_json(is_partial ? stream.answer() : stream.finish(), static_cast<uint64_t>(seed)));
}

Result<std::map<int32_t, std::string>> Chat::marker_tokens() const {
  if (!tokenizer_)
    return Status(StatusCode::kFailedPrecondition,
                  "chat: there is no tokenizer: give the model one, or make the chat with one");
  const std::vector<std::string> markers = answer_form().markers();
  const TokenizerData& data = tokenizer_->data();
  std::map<int32_t, std::string> tokens;
  for (size_t id = 0; id < data.types.size(); ++id) {
    const std::string& text = data.tokens[id];
    if (data.types[id] != TokenType::kControl || text.empty()) continue;
    if (std::ranges::any_of(markers,
                            [&](const std::string& mark) { return mark.find(text) != std::string::npos; }))
      tokens[static_cast<int32_t>(id)] = text;
  }
  return tokens;
}

int32_t Chat::opening_token(std::string_view mark) const {
  if (!tokenizer_) return -1;
  const TokenizerData& data = tokenizer_->data();
  int32_t longest = -1;
  for (size_t id = 0; id < data.types.size(); ++id) {
    const std::string_view text = data.tokens[id];
    if (data.types[id] != TokenType::kControl && data.types[id] != TokenType::kUserDefined) continue;
    if (text != mark && !(answer::is_tag(text) && mark.starts_with(text))) continue;
    if (longest < 0 || text.size() > data.tokens[static_cast<size_t>(longest)].size()) longest = static_cast<int32_t>(id);
  }
  return longest;
}

Result<std::string> Chat::markers_json() const {
  TSR_ASSIGN_OR_RETURN(const auto tokens, marker_tokens());
  Json json = Json::object();
  for (const auto& [id, text] : tokens) json[std::to_string(id)] = text;
  return dump(json);
}

}  // namespace tessera
