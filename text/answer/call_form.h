// The form of a template's calls, read off its renderings.
#pragma once

#include <optional>

#include "text/answer/form.h"
#include "text/answer/form_probe.h"

namespace tessera::answer {

// nullopt where the template shows no calls, or in a way that is not understood. `form`: what is known of the rest;
// the ends of a turn with calls are added. `around_content`: marks that stand around no content before the calls, if any.
std::optional<CallForm> read_call_form(const FormProbe& probe, AnswerForm& form,
                                       const std::optional<AnswerSpan>& around_content);

// The first part of `text` that is the span with nothing but white space in it; empty where there is none.
std::string_view find_empty_span(std::string_view text, const AnswerSpan& span);

}  // namespace tessera::answer
