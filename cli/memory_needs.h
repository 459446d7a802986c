// The memory that a model needs on given devices: to generate text, to train adapters, to train all parameters.
#pragma once

#include "command.h"

namespace cli {

// {"inference": {"context", "bytes": [of each device], "plan"}, "lora": {"rank", "batch", "seq", ...}, "full": {...}};
// {"error"} in place of what cannot be planned. Plans are made, nothing is allocated.
Json memory_needs(const Common& common, const Model& model, int64_t longest);
void print_memory_needs(const Json& needs, const std::string& devices);

}  // namespace cli
