// The explanation of a plan that generates text on hardware that is absent: where a request's time goes in
// prefill and decode, what the fullest device holds, what other meshes and batches would lose or lack.
#pragma once

#include <cstdint>

#include "graph/explanation.h"
#include "parallel/analytic/generate_search.h"

namespace tessera {

struct ExplainGenerateOptions {
  bool timeline = true;  // and the memory curve
  size_t most_spans = 60'000;
  size_t most_points = 2'000;
};

// `found` is the result of `search` on this model and cluster. Time adds up to found.best.time.request_s, of
// the slowest stage; memory to its memory_bytes.
Explanation explain_generate(const TransformerShape& model, const Cluster& cluster,
                             const GenerateOptions& search, const GenerateResult& found,
                             const ExplainGenerateOptions& options = {});

}  // namespace tessera
