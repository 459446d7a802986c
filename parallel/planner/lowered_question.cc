#include "parallel/planner/lowered_question.h"

#include "parallel/pricing/device_limit.h"
#include "parallel/pricing/host_tier.h"

namespace tessera {

LoweredQuestion::LoweredQuestion(const Graph& graph, const Cluster& cluster, const KernelCatalog& catalog,
                                 const PlanOptions& options)
    : graph(graph),
      cluster(cluster),
      catalog(catalog),
      options(options),
      limit(device_limit(cluster, options.memory_limit)),
      trials(graph, bound_graph, cluster, catalog, options, limit) {}

Status LoweredQuestion::begin() {
  TSR_ASSIGN_OR_RETURN(bound_graph, graph.bind_partly(options.symbols));
  int64_t tokens = 0;
  for (const auto& [name, value] : options.symbols)
    if (name == "T") tokens = value;
  space = space_of(graph, options.global_batch, tokens, offload_tier(cluster));
  TSR_ASSIGN_OR_RETURN(roots, search_roots(space, options, static_cast<int32_t>(cluster.devices.size())));
  bounds.emplace(bound_graph, space, cluster, catalog);
  return {};
}

Result<std::optional<PlanAttempt>> LoweredQuestion::find_smallest(int64_t enough, bool nothing_else) {
  return find_min_memory_plan(min_memory_space(), goal(enough, nothing_else));
}

Result<LikelyFit> LoweredQuestion::likely_fit() {
  LikelyFit it;
  if (!options.pins.empty()) return it;
  const MinMemorySpace smallest = min_memory_space();
  if (exceeds_memory(smallest, limit)) return LikelyFit{Fit::kNo, {}, 0};
  if (!may_choose_smallest()) return it;
  const std::optional<LikelyPlan> likely = find_likely_plan(smallest, goal(limit, true));
  if (!likely) {
    if (!is_effort_spent()) it.fit = Fit::kNo;
    return it;
  }
  TSR_ASSIGN_OR_RETURN(it.plan, trials.plan_of(likely->node));
  it.fit = Fit::kLikely;
  it.instructions = likely->instructions;
  return it;
}

}  // namespace tessera
