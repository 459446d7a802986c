#include "parallel/strategy/propagation.h"

#include <algorithm>

#include "graph/base/text.h"
#include "parallel/sharding/batch_cut.h"
#include "parallel/strategy/propagator.h"
#include "parallel/strategy/refine_plan.h"
#include "parallel/strategy/stage_cut.h"

namespace tessera {

Result<int32_t> micro_batches_of(const StrategySpec& spec, int64_t global_batch, bool may_cut) {
  if (spec.micro_batch == 0) {
    // The smallest sufficient number, or the maximum.
    const int64_t each = global_batch / spec.data(), enough = 2 * int64_t{spec.pp};
    if (spec.pp == 1 || !may_cut || each < 1 || global_batch % spec.data() != 0) return 1;
    for (int64_t count = std::min(each, enough); count < each; ++count)
      if (each % count == 0) return static_cast<int32_t>(count);
    return static_cast<int32_t>(each);
  }
  const int64_t at_once = spec.micro_batch * spec.data();
  if (global_batch % at_once == 0) return static_cast<int32_t>(global_batch / at_once);
  return Status(
      StatusCode::kInvalidArgument,
      format("a batch of {} sequences is not a multiple of {}={} times mb={}; {}", global_batch,
             spec.ep > 1 ? "dp times ep" : "dp", spec.data(), spec.micro_batch,
             global_batch % spec.data() == 0
                 ? format("use mb= a divisor of {}", global_batch / spec.data())
                 : format("leave mb out, as ranks get unequal shares, or use a multiple of {} sequences",
                          spec.data())));
}

Result<Plan> propagate(const Graph& graph, const PropagationOptions& options) {
  if (options.global_batch < 1)
    return Status(StatusCode::kInvalidArgument,
                  format("a batch of {} sequences; at least 1 is wanted", options.global_batch));
  if (options.spec.zero_group > 0 && options.spec.dp % options.spec.zero_group != 0)
    return Status(StatusCode::kInvalidArgument,
                  format("zero groups of {} do not divide dp={}", options.spec.zero_group, options.spec.dp));
  const bool may_cut = options.spec.pp > 1 && !graph.gradients().empty() && cut_batch(graph).ok();
  TSR_ASSIGN_OR_RETURN(const int32_t count, micro_batches_of(options.spec, options.global_batch, may_cut));
  const std::pair<std::string, int64_t> batch("B", options.global_batch / count);
  const bool has_batch = std::ranges::any_of(graph.symbols(), [](const Symbol& s) { return s.name == "B"; });
  TSR_ASSIGN_OR_RETURN(Graph bound, graph.bind(std::span(&batch, has_batch ? 1 : 0)));
  TSR_ASSIGN_OR_RETURN(Plan plan, Propagator(graph, bound, options, count).run());
  TSR_RETURN_IF_ERROR(refine_plan(bound, options.spec, plan));
  if (options.spec.pp == 1) return plan;
  StageCut cut;
  cut.devices = options.spec.pp;
  cut.virtual_stages = options.spec.virtual_stages;
  cut.schedule = options.spec.schedule;
  cut.blocks = options.stage_blocks;
  cut.owners = options.owners;
  cut.holders = options.holders;
  return cut_stages(bound, std::move(plan), cut);
}

Result<Plan> apply_strategy(const Graph& graph, const StrategySpec& spec, int64_t global_batch) {
  PropagationOptions options;
  options.spec = spec;
  options.global_batch = global_batch;
  return propagate(graph, options);
}

}  // namespace tessera
