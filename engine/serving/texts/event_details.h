// Details of an engine's events as JSON; tessera.h documents the keys.
#pragma once

#include <string>

#include "engine/serving/texts/serving_event.h"
#include "text/tokenizer/tokenizer.h"

namespace tessera {

// Empty for an event without details. `tokenizer`, for token texts, may be null.
std::string event_details_json(const ServingEvent& event, const Tokenizer* tokenizer);

}  // namespace tessera
