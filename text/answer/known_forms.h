// What templates do not show of an answer's form, told by the words in them.
#pragma once

#include <string_view>

#include "text/answer/form.h"

namespace tessera::answer {

// Forms whose marks cannot be told apart by rendering: messages within messages, such as the channels of harmony.
// False where the template has none of these.
bool find_whole_form(std::string_view text, AnswerForm& form);

// Reasoning, for templates that leave it out of the past. False for none.
bool find_reasoning(std::string_view text, AnswerSpan& reasoning);

// Calls, for templates that leave them out or take them as content.
void add_known_calls(std::string_view text, AnswerForm& form);

}  // namespace tessera::answer
