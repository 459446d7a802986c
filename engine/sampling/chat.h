// Chat: a chat template with the tokenizer whose control tokens it writes. Immutable; any thread.
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

// Token ids of a conversation, and for each whether the assistant says it.
struct ChatTokens {
  std::string text;  // that they are of
  std::vector<int32_t> ids;
  std::vector<uint8_t> assistant;  // empty where it was not asked for
};

class Chat {
 public:
  // The template is the option `template` where it is given, else the model's metadata "chat_template", or with the option
  // `name` "chat_template.NAME". kNotFound where the model has none.
  static Result<std::shared_ptr<const Chat>> create(const SharedModel& model, const Options& options);
  // `tokenizer` may be null: then nothing is encoded, and the template has no special tokens.
  static Result<std::shared_ptr<const Chat>> create(std::string_view text,
                                                    std::shared_ptr<const Tokenizer> tokenizer);

  // `messages`: JSON. Options: tools, documents, variables (JSON), add_generation_prompt, continue_final_message, now.
  Result<std::string> render(std::string_view messages, const Options& options) const;
  // {"text", "data": [[begin, end]], "assistant": the same, or null with the reason in "assistant_reason"}
  Result<std::string> render_ranges_json(std::string_view messages, const Options& options) const;
  // Control tokens are recognised in what the template wrote, never in the caller's data.
  Result<ChatTokens> encode(std::string_view messages, const Options& options, bool with_assistant) const;

  // {"messages", "dropped", "tokens"}: the conversation without its oldest turns, so that it has at most `most_tokens`.
  Result<std::string> fit_json(std::string_view messages, const Options& options, int64_t most_tokens) const;

  // How the model writes its turn; found when it is first asked for.
  const AnswerForm& answer_form() const;
  // The message that an answer is, as JSON. Options: prompt, in_thinking, tools, partial, seed.
  Result<std::string> parse(std::string_view text, const Options& options) const;
  // The texts of control tokens that lie in the answer form's marks. Decoding leaves control tokens out; where one of these
  // comes its text belongs into the answer.
  Result<std::map<int32_t, std::string>> marker_tokens() const;
  Result<std::string> markers_json() const;  // {"ID": text}
  // The control or added token with this text; -1: none, or no tokenizer.
  int32_t token_of(std::string_view text) const;

 private:
  Chat() = default;
  mutable std::once_flag form_once_;
  mutable AnswerForm form_;
  std::shared_ptr<const ChatTemplate> template_;
  std::shared_ptr<const Tokenizer> tokenizer_;
};

}  // namespace tessera
