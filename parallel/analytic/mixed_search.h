// Pipelines whose stages lie on devices of different kinds, those of one kind in a row: over the mesh (tp,
// dp) that all stages share, micro-batch, ZeRO stage, how many stages each kind has and in which order the
// kinds come, where the blocks are cut, and which of them each stage recomputes, under 1F1B. Each stage is
// priced with its own kind, so that fast devices get more blocks.
//
// Best first by a closed form; those whose bound reaches the best are closed, the others' cuts are optimal
// under the bound of analytic/step_solver, which asks for no stages alike.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "graph/base/result.h"
#include "parallel/analytic/cluster_parts.h"
#include "parallel/analytic/mixed_time.h"
#include "parallel/analytic/step_search.h"

namespace tessera {

struct MixedSearchResult {
  std::optional<FoundStep> best;  // nothing: no such pipeline fits, or is faster than asked for
  StageKinds kinds;               // of its stages
  std::vector<size_t> groups;     // that it uses, in the order of its stages
  double bound_s = 0;             // none is faster; INFINITY when there are none
  int64_t configurations = 0, solved = 0;
};

// Of plans that reach `best_s` none needs to be found; which one is found does not depend on it.
MixedSearchResult search_mixed(const TransformerShape& model, const ClusterParts& parts,
                               const StepSearchOptions& options, double best_s);

}  // namespace tessera
