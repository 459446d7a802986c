#include "parallel/analytic/least_step.h"

#include <algorithm>

#include "graph/base/text.h"
#include "parallel/analytic/memory_floor.h"
#include "parallel/analytic/stage_time.h"
#include "parallel/planner/fewest_devices.h"

namespace tessera {

namespace {

// Of configurations that differ in these alone, the others hold no less: a micro-batch as small as may be,
// the sequence parallel, state and gradients sharded (ZeRO-3 gathers weights again, so ZeRO-2 may hold less),
// chunks of a stage (which keep more micro-batches in flight) only where they are pinned.
bool may_hold_least(const ForeignPlan& plan, const StepSearchOptions& options) {
  if (!options.micro_batch && plan.micro_batch > 1) return false;
  if (!options.pin_sequence_parallel && plan.tp > 1 && !plan.sequence_parallel) return false;
  if (!options.zero && plan.dp > 1 && plan.zero < 2) return false;
  return options.virtual_stages || plan.virtual_stages == 1;
}

// The stage that is fullest when the plan is solved under its least limit, and what it holds.
std::string peak_text(const TransformerShape& model, const Cluster& cluster, const StepSearchOptions& options,
                      const LeastLimit& least) {
  const StepSolver solver(model, cluster, options, least.plan, least.bytes);
  double bound_s = 0;
  const Result<FoundStep> found = solver.solve(bound_s);
  if (!found.ok()) return {};
  const auto stage =
      static_cast<int32_t>(std::ranges::max_element(found->memory_bytes) - found->memory_bytes.begin());
  StageBlocks whole;
  for (size_t v = 0; v < found->stages.size(); ++v) {
    if (device_of(found->plan, static_cast<int32_t>(v)) != stage) continue;
    whole.blocks += found->stages[v].blocks;
    whole.full += found->stages[v].full;
    whole.selective += found->stages[v].selective;
  }
  const ForeignPlan& plan = found->plan;
  const int64_t m = options.global_batch / (plan.micro_batch * plan.data());
  const int64_t flights = in_flight(plan, stage, m);
  const StageMemory memory =
      StageTimes(model, plan, cluster)
          .memory(whole, stage == 0, holds_head(plan, stage), flights, plan.virtual_stages);
  std::vector<std::pair<int64_t, std::string>> parts = {
      {memory.parameters, "parameters"},
      {memory.gradients, "gradients"},
      {memory.optimizer, "optimizer state"},
      {memory.activations, format("activations of {} micro-batches", flights)},
      {memory.logits, "logits"},
      {memory.transient, "a block while it is computed"},
      {memory.gathered, "gathered weights"},
      {memory.reserved, "contexts and communicators"}};
  std::ranges::stable_sort(parts, std::greater(), &std::pair<int64_t, std::string>::first);
  std::vector<std::string> texts;
  for (const auto& [bytes, name] : parts)
    if (bytes > 0) texts.push_back(format("{} {}", name, bytes_text(bytes)));
  return format(" Its peak: stage {} ({} blocks), at its first backward pass: {}.", stage, whole.blocks,
                join(texts, ", "));
}

}  // namespace

LeastLimit least_limit(const TransformerShape& model, const Cluster& cluster,
                       const StepSearchOptions& options, int64_t below) {
  LeastLimit least{below, {}};
  for (const ForeignPlan& plan : step_space(model, cluster, options)) {
    if (!may_hold_least(plan, options)) continue;
    const int64_t bytes = StepSolver(model, cluster, options, plan, 0).least_limit(least.bytes);
    if (bytes < least.bytes) least = {bytes, plan};
  }
  return least;
}

std::optional<FewestDevices> fewest_devices_for(const TransformerShape& model, const Cluster& cluster,
                                                const StepSearchOptions& options, int32_t most) {
  const int64_t limit = memory_limit_of(cluster, options);
  FewestDevices found;
  const auto fits = [&](int32_t count) -> Result<bool> {
    Cluster larger = cluster;
    larger.devices.assign(static_cast<size_t>(count), cluster.devices[0]);
    for (const ForeignPlan& plan : step_space(model, larger, options)) {
      if (!may_hold_least(plan, options)) continue;
      if (StepSolver(model, larger, options, plan, limit).least_limit(limit + 1) > limit) continue;
      found = {count, plan};
      return true;
    }
    return false;
  };
  // Of fewer no share is small enough, however they are used.
  const int64_t enough = devices_by_floor(model, cluster, options, limit);
  const auto too_few = static_cast<int32_t>(
      std::clamp<int64_t>(enough - 1, static_cast<int64_t>(cluster.devices.size()), most));
  // Every device is used, so more may fit worse.
  const Result<std::optional<int32_t>> count = fewest_devices(too_few, most, false, fits);
  if (!count.ok() || !*count) return std::nullopt;
  return found;
}

Status nothing_fits(const TransformerShape& model, const Cluster& cluster, const StepSearchOptions& options) {
  const auto words = [&](ForeignPlan plan) {
    plan.recompute = options.recompute.value_or(Recompute::kFull);
    return to_text(plan);
  };
  const LeastLimit least = least_limit(model, cluster, options);
  const auto given = static_cast<int32_t>(cluster.devices.size());
  const int32_t most = std::clamp(8 * given, 64, std::max(64, given + 4096));
  const std::optional<FewestDevices> fewest = fewest_devices_for(model, cluster, options, most);
  const std::string devices = fewest ? format("The smallest number of devices that would do is {}, with '{}'",
                                              fewest->devices, words(fewest->plan))
                                     : format("Up to {} devices would not do either", most);
  // What is certain of the narrower space only.
  const char* space = options.wide ? "without context parallelism, offload and idle devices " : "";
  return Status(
      StatusCode::kOutOfMemory,
      format("no plan fits {} a device; {}the smallest limit that works is {} ({} bytes) with '{}'.{} {}",
             bytes_text(memory_limit_of(cluster, options)), space, bytes_text(least.bytes), least.bytes,
             words(least.plan), peak_text(model, cluster, options, least), devices));
}

}  // namespace tessera
