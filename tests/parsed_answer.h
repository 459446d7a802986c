// An answer that is taken apart at once.
#pragma once

#include <string_view>

#include "text/answer/answer.h"
#include "text/answer/stream.h"

namespace tessera {

// The whole of an answer. `text`: with the tokens of AnswerForm::markers written out, and no others that are control
// tokens. What is no well-formed call is content, as it is written; of white space between the parts nothing is kept.
inline Answer parse_answer(const AnswerForm& form, std::string_view text, const AnswerContext& context = {}) {
  AnswerStream stream(form, context);
  (void)stream.add(text);
  return stream.finish();
}

}  // namespace tessera
