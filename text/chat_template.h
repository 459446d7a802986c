// ChatTemplate: renders a conversation as the text a model was trained on, by the
// model's Jinja template. It tracks which text is the caller's data, so that it
// never becomes control tokens, and which the assistant says. Immutable; any thread.
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
  bool continue_final_message = false;  // the text ends within the last message, for the model to continue
  std::optional<int64_t> now_s;         // time for templates that print the date, in seconds since 1970; nullopt: now
};

struct RenderedChat {
  std::string text;
  std::vector<TextRange> data;       // from the caller's data; ascending, disjoint
  std::vector<TextRange> assistant;  // said by the assistant; ascending, disjoint
  // Turn: the same by message; ascending, disjoint.
  struct Turn {
    TextRange range;
    size_t message;
  };
  std::vector<Turn> turns;
};

class ChatTemplate {
 public:
  // `special`: texts of special tokens by template names,
  // such as bos_token. Errors of jinja::Template::parse.
  static Result<std::shared_ptr<const ChatTemplate>> create(std::string_view text,
                                                            std::map<std::string, std::string> special);

  // Leaves `assistant` and `turns` empty. kInvalidArgument for invalid messages and a failing template.
  Result<RenderedChat> render(const ChatRequest& request) const;
  // Fills `assistant` and `turns`: the spans of `{% generation %}`, or, without any,
  // the text after each generation prompt to the turn's end. kUnsupported, naming
  // the message, if the template shows an answer differently than when it was last.
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

// Whether a member counts as absent: null, and for members other than content also "", [] and {}.
bool is_without_value(std::string_view member, const Json& value);

// Texts of the tokenizer's bos_token, eos_token, unk_token and pad_token, if present.
std::map<std::string, std::string> special_texts(const TokenizerData& tokenizer);

// Metadata key of a model's template; further ones are "chat_template.NAME".
inline constexpr std::string_view kChatTemplateKey = "chat_template";

}  // namespace tessera
