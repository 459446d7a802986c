#include "parallel/analytic/frozen_reasons.h"

#include <algorithm>
#include <cmath>

#include "graph/base/text.h"
#include "parallel/analytic/stage_time.h"

namespace tessera {

namespace {

std::string seconds_text(double seconds) {
  if (seconds >= 1) return format("{} s", std::round(seconds * 1000) / 1000);
  return format("{} ms", std::round(seconds * 1e6) / 1000);
}

StageMemory fullest(const TransformerShape& model, const Cluster& cluster, const ForeignPlan& plan,
                    const std::vector<StageBlocks>& stages, int64_t batch) {
  const StageTimes times(model, plan, cluster);
  StageMemory most;
  for (int32_t device = 0; device < plan.pp; ++device) {
    StageBlocks whole;
    for (size_t v = 0; v < stages.size(); ++v) {
      if (device_of(plan, static_cast<int32_t>(v)) != device) continue;
      whole.blocks += stages[v].blocks;
      whole.full += stages[v].full, whole.selective += stages[v].selective;
      for (size_t q = 0; q < whole.offloaded.size(); ++q) whole.offloaded[q] += stages[v].offloaded[q];
    }
    const StageMemory held =
        times.memory(whole, device == 0, holds_head(plan, device),
                     in_flight(plan, device, batch / (plan.micro_batch * plan.data())), plan.virtual_stages);
    if (held.total() > most.total()) most = held;
  }
  return most;
}

int64_t recomputed(const FoundStep& step) {
  int64_t count = 0;
  for (const StageBlocks& stage : step.stages) count += stage.full + stage.selective;
  return count;
}

}  // namespace

std::vector<std::string> frozen_reasons(const TransformerShape& model, const Cluster& cluster,
                                        const StepSearchOptions& options, const FoundStep& found) {
  const int64_t batch = options.global_batch, rank = found.plan.lora;
  const int64_t limit = options.memory_limit > 0 ? options.memory_limit : cluster.kinds[0].memory_bytes;
  const TransformerShape::Adapters adapters = model.adapter_parameters(rank);
  const double trained = static_cast<double>(model.L * (adapters.whole + adapters.split));
  std::vector<std::string> reasons;
  reasons.push_back(
      format("frozen but for adapters of rank {}: {} % as many parameters train as the model has", rank,
             std::round(1e4 * trained / static_cast<double>(model.parameters())) / 100));

  // The same plan with all parameters trained.
  ForeignPlan same = found.plan;
  same.lora = 0;
  const StageMemory frozen = fullest(model, cluster, found.plan, found.stages, batch);
  const StageMemory full = fullest(model, cluster, same, found.stages, batch);
  reasons.push_back(
      format("gradients and optimizer state take {} a device; trained in full they would take {}",
             bytes_text(frozen.gradients + frozen.optimizer), bytes_text(full.gradients + full.optimizer)));
  if (full.total() > limit)
    reasons.push_back(format("trained in full this plan would need {} a device, {} more than there is",
                             bytes_text(full.total()), bytes_text(full.total() - limit)));
  if (const auto time = step_time(model, same, cluster, batch, found.stages); time.ok())
    reasons.push_back(format(
        "products for gradients of frozen weights are left out, and what is reduced over dp is theirs no "
        "longer: {} of computation and {} of reduction instead of {} and {}",
        seconds_text(found.time.compute_s), seconds_text(found.time.gradients_s),
        seconds_text(time->compute_s), seconds_text(time->gradients_s)));

  StepSearchOptions all = options;
  all.features.lora = 0;
  const auto other = search_step(model, cluster, all);
  if (!other.ok()) {
    reasons.emplace_back("trained in full nothing fits");
    return reasons;
  }
  const ForeignPlan& theirs = other->best.plan;
  reasons.push_back(format(
      "trained in full the best plan is {}: {} a step, {} of {} blocks recomputed, here {}", to_text(theirs),
      seconds_text(other->best.time.step_s), recomputed(other->best), model.L, recomputed(found)));
  std::vector<std::string> less;
  if (found.plan.zero < theirs.zero) less.emplace_back("sharding");
  if (recomputed(found) < recomputed(other->best)) less.emplace_back("recomputation");
  if (found.plan.tp < theirs.tp) less.emplace_back("tensor parallelism");
  if (found.plan.pp < theirs.pp) less.emplace_back("pipelining");
  if (found.plan.micro_batch > theirs.micro_batch) less.emplace_back("cutting of the batch");
  if (!less.empty()) reasons.push_back(format("so there is less need for {}", join(less, ", ")));
  return reasons;
}

}  // namespace tessera
