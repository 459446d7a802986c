// Details of an engine's events, as JSON; keys are documented in tessera.h.
#pragma once

#include <string>

#include "engine/serving/texts/serving_event.h"
#include "text/tokenizer/tokenizer.h"

namespace tessera {

// Empty where an event has none. `tokenizer`, for the texts of tokens, may be null.
std::string event_details_json(const ServingEvent& event, const Tokenizer* tokenizer);

}  // namespace tessera
