// The scaling of rotary positions in config.json: rope_parameters, or the older rope_scaling.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "serialize/import/json_fields.h"
#include "serialize/import/rope_scaling.h"

namespace tessera {

struct ScaledContext {
  int64_t tokens = 0;   // of the model
  double original = 0;  // length before scaling
};

// `rope`: the object, which receives errors. nullopt without scaling, and after an error.
std::optional<RopeScaling> read_huggingface_scaling(JsonFields& rope, const std::string& type,
                                                    const Rotation& rotation, const ScaledContext& context);

}  // namespace tessera
