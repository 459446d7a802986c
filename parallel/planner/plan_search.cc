#include "parallel/planner/plan_search.h"

#include <algorithm>

#include "parallel/planner/search_run.h"

namespace tessera {

int64_t memory_limit(const Cluster& cluster, const PlanOptions& options) {
  if (options.memory_limit > 0) return options.memory_limit;
  int64_t limit = INT64_MAX;
  for (const int32_t kind : cluster.devices) {
    const int64_t bytes = cluster.kinds[static_cast<size_t>(kind)].memory_bytes;
    if (bytes > 0) limit = std::min(limit, bytes);
  }
  return limit;
}

Result<int64_t> least_plan_bytes(const Graph& graph, const Cluster& cluster, const KernelCatalog& catalog,
                                 const PlanOptions& options) {
  return SearchRun(graph, cluster, catalog, options).least_bytes();
}

Result<LikelyFit> find_likely_fit(const Graph& graph, const Cluster& cluster, const KernelCatalog& catalog,
                                  const PlanOptions& options) {
  return SearchRun(graph, cluster, catalog, options).likely_fit();
}

Result<PlanResult> search_plan(const Graph& graph, const Cluster& cluster, const KernelCatalog& catalog,
                               const PlanOptions& options) {
  return SearchRun(graph, cluster, catalog, options).run();
}

}  // namespace tessera
