// The explanation of a plan that generates text on hardware that may be absent: where a request's time goes in prefill and
// decode, what the fullest device holds, what other meshes and batches would lose or lack.
#pragma once

#include "graph/explanation.h"
#include "parallel/planner/generation_search.h"

namespace tessera {

struct ExplainGenerationOptions {
  bool timeline = true;  // and the memory curve
  size_t most_spans = 60'000;
  int64_t most_points = 2'000;
};

// `found` is the result of `search` on these prices. Time adds up to the request, of the slowest stage; memory to the bytes of
// the fullest.
Result<Explanation> explain_generation(GenerationPrices& prices, const GenerationOptions& search,
                                       const GenerationResult& found,
                                       const ExplainGenerationOptions& options = {});

}  // namespace tessera
