// ChatTemplate: turns the messages of a conversation into the text that a model was trained on, by the Jinja template
// that comes with the model. It tells which of the text the caller's data made, so that nobody's words become control
// tokens, and which of it the assistant says. Immutable; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "graph/base/result.h"
#include "text/jinja/template.h"
#include "text/json.h"
#include "text/tokenizer/tokenizer.h"

namespace tessera {

struct ChatRequest {
  Json messages;                    // [{"role", "content", ...}]
  Json tools, documents;            // arrays; null: none
  Json variables = Json::object();  // further ones, such as {"enable_thinking": false}
  bool add_generation_prompt = false;
  bool continue_final_message = false;  // the text ends within the last message, for a model to go on with
  std::optional<int64_t> now_s;         // seconds since 1970 for templates that print the date; none: now
};

struct RenderedChat {
  std::string text;
  std::vector<TextRange> data;       // made of the caller's data; in order, apart
  std::vector<TextRange> assistant;  // what the assistant says; in order, apart
  // The same by message; in order, disjoint.
  struct Turn {
    TextRange range;
    size_t message;
  };
  std::vector<Turn> turns;
};

class ChatTemplate {
 public:
  // `special`: texts of special tokens by the names that templates have for them, such as bos_token. Fails as
  // jinja::Template::parse.
  static Result<std::shared_ptr<const ChatTemplate>> create(std::string_view text,
                                                            std::map<std::string, std::string> special);

  // `assistant` and `turns` stay empty. kInvalidArgument for messages that are none, and where the template fails.
  Result<RenderedChat> render(const ChatRequest& request) const;
  // With `assistant` and `turns`: the spans of `{% generation %}` where the template has them. Where it has none, each answer is
  // what follows the generation prompt up to the end of its turn; kUnsupported, with the message, for a template that
  // shows an answer in another way than when it was the last.
  Result<RenderedChat> render_with_spans(const ChatRequest& request) const;

  const std::string& text() const { return text_; }
  bool has_generation() const { return template_->has_generation(); }

 private:
  ChatTemplate() = default;
  Result<RenderedChat> find_spans(const ChatRequest& request) const;
  Result<jinja::Rendering> run(const ChatRequest& request, size_t count, bool add_generation_prompt) const;
  Result<TextRange> find_answer(const ChatRequest& request, const jinja::Rendering& whole,
                                size_t message) const;

  std::string text_;
  std::shared_ptr<const jinja::Template> template_;
  std::map<std::string, std::string> special_;
};

// Whether a member of a message says nothing: null, and other than the content also "", [] and {}.
bool is_without_value(std::string_view member, const Json& value);

// bos_token, eos_token, unk_token and pad_token of a tokenizer, of those that it has.
std::map<std::string, std::string> special_texts(const TokenizerData& tokenizer);

// A model's metadata holds its template under this key, and others under "chat_template.NAME".
inline constexpr std::string_view kChatTemplateKey = "chat_template";

}  // namespace tessera
