// AnswerStart: the text a model writes before its answer, to which grammars do not
// apply: reasoning, or the output channels that precede the answer's channel. Derived
// from the rendered prompt. A value.
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
  std::map<int32_t, std::string> markers;  // texts of the control tokens that `until` and `close` can contain

  // For answers to this prompt. `continues`: the prompt ends within an answer.
  static AnswerStart of(const Chat& chat, std::string_view prompt, bool continues);
};

}  // namespace tessera
