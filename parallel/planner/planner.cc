#include "parallel/planner/planner.h"

#include "graph/base/text.h"
#include "parallel/planner/device_advice.h"
#include "parallel/planner/heterogeneous_plan.h"
#include "parallel/planner/plan_search.h"
#include "parallel/pricing/check_cluster.h"
#include "parallel/strategy/apply_pins.h"

namespace tessera {

Result<int64_t> least_bytes_of_plans(const Graph& graph, const Cluster& given, const KernelCatalog& catalog,
                                     const PlanOptions& options) {
  TSR_RETURN_IF_ERROR(check_cluster(given));
  if (is_heterogeneous(given) || options.like != nullptr) return 0;
  TSR_RETURN_IF_ERROR(check_pins(graph, options.pins));
  return least_plan_bytes(graph, with_one_kind(given), catalog, options);
}

Result<LikelyFit> likely_fit(const Graph& graph, const Cluster& given, const KernelCatalog& catalog,
                             const PlanOptions& options) {
  TSR_RETURN_IF_ERROR(check_cluster(given));
  if (is_heterogeneous(given) || options.like != nullptr) return LikelyFit{};
  TSR_RETURN_IF_ERROR(check_pins(graph, options.pins));
  return find_likely_fit(graph, with_one_kind(given), catalog, options);
}

Result<PlanResult> make_plan(const Graph& graph, const Cluster& given, const KernelCatalog& catalog,
                             const PlanOptions& options) {
  TSR_RETURN_IF_ERROR(check_cluster(given));
  if (is_heterogeneous(given)) return plan_heterogeneous(graph, given, catalog, options);
  const Cluster cluster = with_one_kind(given);
  if (options.like != nullptr && options.like_graph == nullptr)
    return Status(StatusCode::kInvalidArgument, "PlanOptions.like needs like_graph with it");
  TSR_RETURN_IF_ERROR(check_pins(graph, options.pins));
  Result<PlanResult> result = search_plan(graph, cluster, catalog, options);
  const bool too_large = !result.ok() && result.status().code() == StatusCode::kOutOfMemory;
  if (!too_large || !options.advise || options.any_that_fits || options.like != nullptr) return result;
  TSR_ASSIGN_OR_RETURN(const DeviceAdvice advice, devices_that_do(graph, cluster, catalog, options));
  const Status refused =
      Status(StatusCode::kOutOfMemory, advice.words.empty() ? std::string(result.status().message())
                                                 : format("{}. {}", result.status().message(), advice.words))
          .with_numbers_of(result.status());
  return advice.devices ? refused.with_number("smallest_devices", *advice.devices) : refused;
}

}  // namespace tessera
