// Which of the plans that are about as fast is taken. Prices are right to a few per cent, and not all parts
// of them alike: what ranks of a tensor-parallel group wait for each other in every pass scatters most, then
// what kernels gain from more work at once; that replicas are as fast as each other is safest. So of plans
// with as many stages that are predicted nearly as fast as the fastest, the one that counts on the former
// least is taken, and what that gives up by prediction is told.
#pragma once

#include <optional>

#include "parallel/analytic/step_search.h"

namespace tessera {

// How near: below what predictions of unseen rows are off by (tests/planner/measured_steps_test.cc).
inline constexpr double kNearlyAsFast = 0.02;

// Whether `plan` has the stages of `fastest`, and no wider tensor parallelism or larger micro-batches.
bool may_stand_for(const ForeignPlan& plan, const ForeignPlan& fastest);
// Of such plans: less tensor parallelism goes first, then smaller micro-batches.
bool steadier(const ForeignPlan& plan, const ForeignPlan& other);

// The steadiest plan that takes at most 1 + `within` times as long as `search`'s best, the fastest of
// several; nothing where that is the best itself. tp and micro-batch are parts of the best's, everything but
// the stages is searched anew, and what `options` pins stays.
std::optional<FoundStep> steady_step(const TransformerShape& model, const Cluster& cluster,
                                     const StepSearchOptions& options, const StepSearchResult& search,
                                     double within);

}  // namespace tessera
