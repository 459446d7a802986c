// ServedAnswer: parses an assistant's turn while it is generated,
// into reasoning, content and tool calls. One thread at a time.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/sampling/chat.h"
#include "text/answer/stream.h"

namespace tessera {

// AnswerReading: the form of a conversation's answers. Immutable; shared by the texts of a request.
struct AnswerReading {
  std::shared_ptr<const Chat> chat;
  std::optional<AnswerForm> own_form;      // none: the chat's
  std::map<int32_t, std::string> markers;  // Chat::marker_tokens
  AnswerContext context;

  const AnswerForm& form() const { return own_form ? *own_form : chat->answer_form(); }
};

class ServedAnswer {
 public:
  // `seed`: for the ids of tool calls.
  ServedAnswer(std::shared_ptr<const AnswerReading> reading, uint64_t seed);

  // The text of a control token within a mark; null for other tokens, which the decoder knows.
  const std::string* marker(int32_t token) const;
  // Called before the text of each generated token.
  void begin_token() { token_begins_.push_back(text_bytes_); }
  // Returns the parts that are decided by this text.
  AnswerDelta add(std::string_view text);
  // add_start: text before the answer, all reasoning.
  // add_content: text under a grammar, all content.
  AnswerDelta add_start(std::string_view text);
  AnswerDelta add_content(std::string_view text);
  // Returns the held-back text; `message` is complete afterwards.
  AnswerDelta finish();
  // {"role", "content", ...} as JSON.
  std::string message() const;
  // Number of tokens of the reasoning and its marks, after `finish`.
  int64_t reasoning_tokens() const;

 private:
  const std::shared_ptr<const AnswerReading> reading_;
  const uint64_t seed_;
  AnswerStream stream_;
  std::vector<size_t> token_begins_;    // in the text
  size_t text_bytes_ = 0;               // given
  size_t content_ = 0, reasoning_ = 0;  // bytes returned
  std::string start_, limited_;         // given by add_start and add_content
  bool is_limited_ = false;
  Answer answer_;                       // after `finish`
};

}  // namespace tessera
