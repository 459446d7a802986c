// Sampling settings recommended by a model's file, as defaults of requests:
// generation_config.json of a Hugging Face folder, or GGUF keys "general.sampling.*".
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/base/options.h"
#include "engine/sampling/sampling_settings.h"
#include "graph/base/result.h"

namespace tessera {

// The values of a generation_config.json by key: booleans become 1 and 0, lists
// and objects JSON text; null is absent. kCorrupt unless it is a JSON object.
Result<Options> generation_config_values(std::string_view json);

struct RecommendedSampling {
  SamplingSettings settings;
  // Keys that would change texts but are ignored, because
  // they are unsupported or out of range; a line each.
  std::vector<std::string> not_obeyed;
};

// Converts `values` with keys of either format; defaults are in `otherwise`. do_sample 0 means
// temperature 0; in GGUF, penalty_last_n -1 means all tokens, and 0 disables penalties. Unrelated keys
// (token ids, versions) are ignored. Never fails: a bad recommendation does not prevent using the model.
RecommendedSampling recommend_sampling(const Options& values, const SamplingSettings& otherwise);

}  // namespace tessera
