// How a model's file recommends to draw texts: metadata of models.
#pragma once

#include <string_view>

namespace tessera {

// The metadata that holds it: the text of a Hugging Face folder's generation_config.json, or the keys
// "general.sampling.*" of a GGUF file as a JSON object.
inline constexpr std::string_view kGenerationConfigKey = "generation_config";

}  // namespace tessera
