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
  double original = 0;  // before its positions were scaled
};

// `rope`: the object; errors are left there. nullopt where nothing is scaled, and after an error.
std::optional<RopeScaling> read_huggingface_scaling(JsonFields& rope, const std::string& type,
                                                    const Rotation& rotation, const ScaledContext& context);

}  // namespace tessera
