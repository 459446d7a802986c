// ServedAnswer: a text that is an assistant's turn, taken apart while it is made: reasoning, content, calls of tools. One
// thread at a time.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "engine/sampling/chat.h"
#include "text/answer/stream.h"

namespace tessera {

// What answers of a conversation are parsed by. Immutable; shared by the texts of a request.
struct AnswerReading {
  std::shared_ptr<const Chat> chat;        // which keeps the form
  std::map<int32_t, std::string> markers;  // Chat::marker_tokens
  AnswerContext context;
};

class ServedAnswer {
 public:
  // `seed`: of the ids of calls.
  ServedAnswer(std::shared_ptr<const AnswerReading> reading, uint64_t seed);

  // The text of a control token that lies in a mark; null for others, which decoders know.
  const std::string* marker(int32_t token) const;
  // What is certain with this text.
  AnswerDelta add(std::string_view text);
  // Text that comes before the answer, all of which is reasoning; and text of an answer that a grammar limits, all of which
  // is content.
  AnswerDelta add_start(std::string_view text);
  AnswerDelta add_content(std::string_view text);
  // What was held back; then `message` is complete.
  AnswerDelta finish();
  // {"role", "content", ...} as JSON.
  std::string message() const;

 private:
  const std::shared_ptr<const AnswerReading> reading_;
  const uint64_t seed_;
  AnswerStream stream_;
  size_t content_ = 0, reasoning_ = 0;  // bytes given
  std::string start_, limited_;         // given by add_start and add_content
  bool is_limited_ = false;
  Answer answer_;                       // when it is finished
};

}  // namespace tessera
