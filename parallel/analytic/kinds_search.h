// Searches of clusters whose devices are of several kinds: the best of all choices of kinds, the others idle
// (analytic/cluster_parts). Each choice is searched as the cluster of one kind that stands for it, so that
// one more kind adds choices and changes none: it never makes the best slower.
//
// Besides, pipelines whose stages lie on different kinds (analytic/mixed_search), of the whole space only.
//
// The bound is the least of those of all choices: no plan in which every device is taken for the slowest of
// its choice is faster, nor such a pipeline. Other plans that give fast and slow devices unlike shares of the
// work are not among these.
#pragma once

#include "parallel/analytic/cluster_parts.h"
#include "parallel/analytic/generate_search.h"
#include "parallel/analytic/least_step.h"
#include "parallel/analytic/step_search.h"

namespace tessera {

// A fleet of one kind: what its cluster comes to, with nothing said of kinds.
Result<StepSearchResult> search_step(const TransformerShape& model, const Fleet& fleet,
                                     const StepSearchOptions& options);

// When none fits: the smallest limit that would do, with what is the least over all choices, and what to say.
Result<LeastLimit> least_limit(const TransformerShape& model, const Fleet& fleet,
                               const StepSearchOptions& options, int64_t below = INT64_MAX);
Status nothing_fits(const TransformerShape& model, const Fleet& fleet, const StepSearchOptions& options);

// A plan that is given, on devices of all kinds, each taken for the slowest.
struct PricedOnFleet {
  FoundStep found;
  Cluster part;
};
Result<PricedOnFleet> price_step(const TransformerShape& model, const ForeignPlan& plan, const Fleet& fleet,
                                 int64_t global_batch);

Result<GenerateResult> search_generate(const TransformerShape& model, const Fleet& fleet,
                                       const GenerateOptions& options);

}  // namespace tessera
