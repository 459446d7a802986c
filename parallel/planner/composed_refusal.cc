#include "parallel/planner/composed_refusal.h"

#include <algorithm>
#include <optional>

#include "graph/base/cancellation.h"
#include "graph/base/text.h"
#include "parallel/planner/composed_space.h"
#include "parallel/pricing/host_tier.h"

namespace tessera {

namespace {

struct Smallest {
  StrategySpec spec;
  int64_t bytes = INT64_MAX;
};

// Tries the smallest micro-batch for each tensor form, and the schedule with least memory for each number of stages.
Result<Smallest> smallest_plan(const ComposedModel& model, const Cluster& cluster,
                               const KernelCatalog& catalog, const ComposedSearchOptions& options,
                               StrategyPins pins) {
  if (!pins.zero) pins.spec.zero = 3, pins.zero = true;
  if (!pins.recompute) pins.spec.recompute = RecomputeForm::kFull, pins.recompute = true;
  const Tier away = offload_tier(cluster);
  if (!pins.offload || pins.spec.offload.automatic) pins.spec.offload = {false, away, away, away, away};
  const SpaceOfGraph graph = composed_graph(model, cluster, options);
  const ComposedSpace space(graph, pins, static_cast<int64_t>(cluster.devices.size()));
  PlanComposer composer(model, cluster, catalog, options.global_batch, 0);
  Smallest least;
  Status failure;
  for (const PlanGroup& group : space.groups()) {
    if (group.smaller >= 0) continue;
    for (const StrategySpec& plan : space.plans_of(group.spec)) {
      if (!pins.pp && plan.pp > 1 && plan.schedule != ScheduleKind::k1F1B) continue;
      cancellation_point();
      const Result<ComposedPlan> made = composer.compose(plan);
      if (!made.ok()) {
        if (failure.ok()) failure = made.status();
      } else if (made->most_bytes() < least.bytes) {
        least = {plan, made->most_bytes()};
      }
    }
  }
  if (least.bytes < INT64_MAX) return least;
  if (!failure.ok()) return failure;
  return Status(StatusCode::kInvalidArgument,
                format("no plan of {} devices has '{}' with a batch of {} sequences", cluster.devices.size(),
                       options.parallel, options.global_batch));
}

}  // namespace

Status nothing_fits(const ComposedModel& model, const Cluster& cluster, const KernelCatalog& catalog,
                    const ComposedSearchOptions& options) {
  TSR_ASSIGN_OR_RETURN(const StrategyPins pins, parse_parallel(options.parallel));
  TSR_ASSIGN_OR_RETURN(const Smallest least, smallest_plan(model, cluster, catalog, options, pins));
  std::string advice = "no number of devices up to 32 times as many was found to do";
  std::optional<int64_t> devices;
  Cluster larger = cluster;
  for (int32_t times = 2; times <= 32 && !devices; times *= 2) {
    larger.devices.resize(cluster.devices.size() * static_cast<size_t>(times), cluster.devices[0]);
    const Result<Smallest> there = smallest_plan(model, larger, catalog, options, pins);
    if (!there.ok() || there->bytes > options.memory_limit) continue;
    devices = static_cast<int64_t>(larger.devices.size());
    advice = format("{} devices would do, with '{}'", *devices, to_text(there->spec));
  }
  const auto limit_for = [&](int64_t bytes) { return options.limit_for ? options.limit_for(bytes) : bytes; };
  const int64_t smallest = limit_for(least.bytes), given = limit_for(options.memory_limit);
  const Status refused =
      Status(StatusCode::kOutOfMemory,
             format("no plan fits {} a device; the smallest limit that was found to work is {} ({} bytes) "
                    "with '{}'. {}",
                    bytes_text(given), bytes_text(smallest), smallest, to_text(least.spec), advice))
          .with_number("needed_bytes", smallest)
          .with_number("limit_bytes", given)
          .with_number("smallest_limit_bytes", smallest);
  return devices ? refused.with_number("smallest_devices", *devices) : refused;
}

}  // namespace tessera
