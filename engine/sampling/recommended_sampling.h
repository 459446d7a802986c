// Settings that a model's file recommends, as defaults of its requests: generation_config.json of a Hugging Face folder,
// or the keys "general.sampling.*" of a GGUF file.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/base/options.h"
#include "engine/sampling/sampling_settings.h"
#include "graph/base/result.h"

namespace tessera {

// The values of a generation_config.json by key: true and false are 1 and 0, a list or an object is its JSON text, and
// null is as if it were not there. kCorrupt for what is not a JSON object.
Result<Options> generation_config_values(std::string_view json);

struct RecommendedSampling {
  SamplingSettings settings;
  // Keys that would change texts and are not obeyed, because they have no counterpart here or their value is out of range;
  // one line each.
  std::vector<std::string> not_obeyed;
};

// `values` by the keys of either format. What they leave out is as in `otherwise`. do_sample 0 is temperature 0; of GGUF
// penalty_last_n -1 is all tokens, and 0 turns penalties off. Keys of other meaning (token ids, versions) are passed
// over. Never fails: a file's recommendation is no reason not to use its model.
RecommendedSampling recommend_sampling(const Options& values, const SamplingSettings& otherwise);

}  // namespace tessera
