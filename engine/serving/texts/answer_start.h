// AnswerStart: the text a model writes before its answer, unlimited by grammars: reasoning,
// or the channels before the answer's. Derived from the rendered prompt. A value.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace tessera {

class Chat;

struct AnswerStart {
  std::string until;        // the mark before the answer; empty: the answer begins at once
  int32_t open_token = -1;  // the token that opens reasoning, closed by `close`; -1: no reasoning
  std::string close;
  std::map<int32_t, std::string> markers;  // texts of the control tokens in marks

  // For answers to this prompt. `continues`: the prompt ends within an answer.
  static AnswerStart of(const Chat& chat, std::string_view prompt, bool continues);
};

}  // namespace tessera
