// AnswerStart: what a model writes before the answer to a conversation begins, which no grammar limits: its reasoning, or
// the channels before the one of the answer. Read off the rendered prompt. A value.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace tessera {

class Chat;

struct AnswerStart {
  std::string until;        // the mark that the answer begins behind; empty: it begins at once
  int32_t open_token = -1;  // a token that begins reasoning instead of the answer, up to `close`; -1: none may
  std::string close;
  std::map<int32_t, std::string> markers;  // texts of control tokens in marks

  // Of answers to this prompt. `continues`: the prompt ends within an answer.
  static AnswerStart of(const Chat& chat, std::string_view prompt, bool continues);
};

}  // namespace tessera
