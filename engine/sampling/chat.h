// Chat: a chat template with its tokenizer. Immutable; any thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/options.h"
#include "engine/model/shared_model.h"
#include "text/answer/form.h"
#include "text/chat_template.h"

namespace tessera {

// ChatTokens: token ids of a conversation, and which of them the assistant says.
struct ChatTokens {
  std::string text;  // the rendered text
  std::vector<int32_t> ids;
  std::vector<uint8_t> assistant;  // empty: not requested
};

class Chat {
 public:
  // The template is the option `template`, else the metadata "chat_template",
  // or "chat_template.NAME" with the option `name`. kNotFound without one.
  static Result<std::shared_ptr<const Chat>> create(const SharedModel& model, const Options& options);
  // `tokenizer` may be null: nothing is encoded, and the template has no special tokens.
  static Result<std::shared_ptr<const Chat>> create(std::string_view text,
                                                    std::shared_ptr<const Tokenizer> tokenizer);

  // `messages`: JSON. Options: tools, documents, variables (JSON), add_generation_prompt, continue_final_message, now.
  Result<std::string> render(std::string_view messages, const Options& options) const;
  // {"text", "data": [[begin, end]], "assistant": ranges, or null with "assistant_reason"}
  Result<std::string> render_ranges_json(std::string_view messages, const Options& options) const;
  // Control tokens are recognised in the template's text, never in the caller's data.
  Result<ChatTokens> encode(std::string_view messages, const Options& options, bool with_assistant) const;

  // {"messages", "dropped", "tokens"}: the conversation without its oldest turns, at most `most_tokens` long.
  Result<std::string> fit_json(std::string_view messages, const Options& options, int64_t most_tokens) const;

  // The form of the model's turns, derived on first use.
  const AnswerForm& answer_form() const;
  // Parses an answer into a message, as JSON. Options: prompt, in_thinking, tools, partial, seed.
  Result<std::string> parse(std::string_view text, const Options& options) const;
  // Texts of the control tokens in the answer form's marks. Decoding
  // omits control tokens; these must be inserted into the answer.
  Result<std::map<int32_t, std::string>> marker_tokens() const;
  Result<std::string> markers_json() const;  // {"ID": text}
  // The longest control or added token with which the mark begins ("<|channel>" of "<|channel>thought"); -1: none, or no tokenizer.
  int32_t opening_token(std::string_view mark) const;

 private:
  Chat() = default;
  mutable std::once_flag form_once_;
  mutable AnswerForm form_;
  std::shared_ptr<const ChatTemplate> template_;
  std::shared_ptr<const Tokenizer> tokenizer_;
};

}  // namespace tessera
