// The form of a template's calls, read off its renderings.
#pragma once

#include <optional>

#include "serialize/answer/form.h"
#include "serialize/answer/form_probe.h"

namespace tessera::answer {

// nullopt where the template shows no calls, or in a way that is not understood. `form`: what is known of the rest;
// the ends of a turn with calls are added.
std::optional<CallForm> read_call_form(const FormProbe& probe, AnswerForm& form);

}  // namespace tessera::answer
