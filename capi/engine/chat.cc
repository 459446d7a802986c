#include "capi/engine/chat.h"

#include <algorithm>

#include "graph/base/text.h"

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

// A token that overlaps a span is the assistant's. Behind the last token that ends a turn the template goes on.
std::vector<uint8_t> mark_tokens(const Encoding& encoding, size_t size, const std::vector<TextRange>& spans,
                                 const Tokenizer& tokenizer) {
  std::vector<uint8_t> marks(encoding.ids.size(), 0);
  size_t token = 0;
  for (const TextRange& span : spans) {
    const auto end_of = [&](size_t i) {
      return i + 1 < encoding.begins.size() ? encoding.begins[i + 1] : size;
    };
    while (token < marks.size() && end_of(token) <= span.begin) ++token;
    const size_t first = token;
    while (token < marks.size() && encoding.begins[token] < span.end) ++token;
    size_t last = token;
    while (last > first && !tokenizer.ends_text(encoding.ids[last - 1])) --last;
    std::fill(marks.begin() + static_cast<ptrdiff_t>(first),
              marks.begin() + static_cast<ptrdiff_t>(last > first ? last : token), uint8_t{1});
  }
  return marks;
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
  TSR_ASSIGN_OR_RETURN(const RenderedChat rendered,
                       with_assistant ? template_->render_with_spans(request) : template_->render(request));
  const EncodeOptions encode_options{true, rendered.data};
  TSR_ASSIGN_OR_RETURN(Encoding encoding, tokenizer_->encode_with_begins(rendered.text, encode_options));
  ChatTokens tokens;
  if (with_assistant)
    tokens.assistant = mark_tokens(encoding, rendered.text.size(), rendered.assistant, *tokenizer_);
  tokens.ids = std::move(encoding.ids);
  return tokens;
}

}  // namespace tessera
