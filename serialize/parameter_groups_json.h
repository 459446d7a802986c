// Groups of parameters as JSON text:
//   [{"match": "*.lora_b", "lr_factor": 16}, {"match": "token_embedding", "weight_decay": 0}]
// Every group has a match; the other keys are optional.
#pragma once

#include <string_view>
#include <vector>

#include "graph/base/result.h"
#include "graph/optim/parameter_groups.h"

namespace tessera {

Result<std::vector<ParameterGroup>> parameter_groups_from_json(std::string_view text);

}  // namespace tessera
