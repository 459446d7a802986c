// Explanation of a plan for generation on possibly absent hardware: time of a request in
// prefill and decode, memory of the fullest device, and losses of other meshes and batches.
#pragma once

#include "graph/explanation.h"
#include "parallel/planner/generation_search.h"

namespace tessera {

struct ExplainGenerationOptions {
  bool timeline = true;  // with the memory curve
  size_t most_spans = 60'000;
  int64_t most_points = 2'000;
};

// `found`: the result of `search` on these prices. Time adds up to the
// request in the slowest stage, memory to the fullest stage's bytes.
Result<Explanation> explain_generation(GenerationPrices& prices, const GenerationOptions& search,
                                       const GenerationResult& found,
                                       const ExplainGenerationOptions& options = {});

}  // namespace tessera
