// Parts of answer forms that rendering does not show, recognised by words in the template.
#pragma once

#include <string_view>

#include "text/answer/form.h"

namespace tessera::answer {

// Forms that cannot be derived by rendering: messages within messages,
// such as harmony's channels. False if the template has none.
bool find_whole_form(std::string_view text, AnswerForm& form);

// Reasoning marks, for templates that omit past reasoning. False: none.
bool find_reasoning(std::string_view text, AnswerSpan& reasoning);

// Calls, for templates that omit them or treat them as content.
void add_known_calls(std::string_view text, AnswerForm& form);

}  // namespace tessera::answer
