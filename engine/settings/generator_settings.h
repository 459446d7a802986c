// Settings of generators, read from Options. Keys: tessera.h.
#pragma once

#include <cstdint>

#include "engine/base/compute_settings.h"
#include "engine/base/options.h"
#include "engine/sampling/text_settings.h"
#include "graph/base/result.h"

namespace tessera {

// A generator's context: the model's own, as far as memory allows.
inline constexpr int64_t kWholeContext = -1, kMostWholeContext = int64_t{1} << 17;

struct GeneratorSettings {
  ComputeSettings compute;
  InferenceSettings inference;
  int64_t context = 0;  // 0: the model's, at most 2048; kWholeContext: as far as memory allows
  int64_t longest = 0;  // finalized: the model's limit; 0: unknown
  TextSettings text;    // defaults of texts
};

Result<GeneratorSettings> read_generator_settings(const Options& options);
// Fills in a missing context length; kInvalidArgument if it exceeds the model's (`longest`, 0: unknown).
Status finalize_context(GeneratorSettings& settings, int64_t longest);

}  // namespace tessera
