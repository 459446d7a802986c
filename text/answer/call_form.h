// Derives the form of a template's calls from its renderings.
#pragma once

#include <optional>

#include "text/answer/form.h"
#include "text/answer/form_probe.h"

namespace tessera::answer {

// nullopt if the template shows no calls, or in an unknown way. `form`: the known parts; the ends
// of turns with calls are added. `around_content`: marks around empty content before calls, if any.
std::optional<CallForm> read_call_form(const FormProbe& probe, AnswerForm& form,
                                       const std::optional<AnswerSpan>& around_content);

// The first occurrence of the span with only white space inside; empty: none.
std::string_view find_empty_span(std::string_view text, const AnswerSpan& span);

}  // namespace tessera::answer
