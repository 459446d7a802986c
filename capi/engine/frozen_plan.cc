#include "capi/engine/frozen_plan.h"

#include <algorithm>

#include "capi/engine/explain.h"
#include "graph/base/text.h"
#include "graph/transform/adapters.h"
#include "parallel/explain_program.h"
#include "parallel/simulator.h"
#include "parallel/strategy.h"

namespace tessera {
namespace {

// Of the fullest device at its peak, and of the step.
struct Parts {
  int64_t state = 0;  // gradients and optimizer state
  int64_t bytes = 0;
  double step_s = 0, reduced_s = 0;  // reduced: communication over data-parallel ranks, hidden or not
};

// Of `step` under the words of a plan, on as many devices as they use.
Result<Parts> parts_of(const Graph& step, const std::string& strategy, const TrainerSettings& settings,
                       const DeviceSet& devices) {
  PlanOptions options;
  options.global_batch = settings.batch;
  options.parallel = strategy == "single" ? "dp=1" : strategy;
  options.memory_limit = int64_t{1} << 60;
  options.advise = false;
  for (const auto& value : settings.symbols)
    for (const Symbol& symbol : step.symbols())
      if (symbol.name == value.first) options.symbols.push_back(value);
  TSR_ASSIGN_OR_RETURN(const StrategyPins pins, parse_parallel(options.parallel));
  Cluster cluster = devices.cluster();
  if (const auto used = static_cast<size_t>(pins.spec.devices()); used < cluster.devices.size())
    cluster.devices.resize(used);
  TSR_ASSIGN_OR_RETURN(const PlanResult planned, make_plan(step, cluster, devices.catalog(), options));
  const EntrySpec entry{"train_step", &step, &planned.plan};
  TSR_ASSIGN_OR_RETURN(const Program program, lower(std::span(&entry, 1), devices.catalog()));
  TSR_ASSIGN_OR_RETURN(const Simulation simulation, simulate(program, "train_step", cluster));
  ExplainOptions plain;
  plain.timeline = false;
  TSR_ASSIGN_OR_RETURN(const Explanation it,
                       explain_program(std::span(&entry, 1), program, simulation, plain));
  Parts parts;
  parts.bytes = it.memory_bytes, parts.step_s = it.step_s;
  for (const MemoryShare& share : it.memory)
    if (share.cause == "gradients" || share.cause == "optimizer") parts.state += share.bytes;
  for (const TimeShare& share : it.time)
    if (share.axis.find("dp") != std::string::npos) parts.reduced_s += share.seconds + share.hidden_s;
  return parts;
}

int64_t largest_arena(const PlanRecord& record) {
  int64_t bytes = 0;
  for (const PlanRecord::Device& device : record.devices) bytes = std::max(bytes, device.arena_bytes);
  return bytes;
}

// What the frozen model's strategy has less of than full training's.
std::vector<std::string> less_needed(const std::string& frozen, const std::string& full) {
  const auto a = parse_parallel(frozen == "single" ? "" : frozen),
             b = parse_parallel(full == "single" ? "" : full);
  if (!a.ok() || !b.ok()) return {};
  const auto has = [](const std::string& words, std::string_view what) {
    return words.find(what) != std::string::npos;
  };
  std::vector<std::string> less;
  if (a->spec.devices() < b->spec.devices()) less.emplace_back("devices");
  if (a->spec.zero < b->spec.zero) less.emplace_back("sharding");
  if (!has(frozen, "recompute") && has(full, "recompute")) less.emplace_back("recomputation");
  if (!has(frozen, "offload") && has(full, "offload")) less.emplace_back("offload");
  if (a->spec.tp < b->spec.tp) less.emplace_back("tensor parallelism");
  if (a->spec.pp < b->spec.pp) less.emplace_back("pipelining");
  return less;
}

}  // namespace

std::vector<std::string> frozen_plan_reasons(const Graph& forward, bool language_model,
                                             const TrainerSettings& settings,
                                             const std::shared_ptr<DeviceSet>& devices,
                                             const PlanRecord& compiled) {
  const Graph& step = *compiled.entries[0].graph;
  if (step.gradients().empty() || !settings.compute.plan_file.empty()) return {};
  const std::vector<TensorId> parameters = step.tensors_of_kind(TensorKind::kParameter);
  if (std::ranges::all_of(parameters, [&](TensorId id) { return step.tensor(id).trainable; })) return {};

  Result<Graph> whole = without_adapters(forward);  // all parameters trainable
  if (!whole.ok()) return {};
  TrainerSettings full = settings;
  full.frozen.clear();
  full.compute.trace = false;
  full.compute.measure = 0;  // prices against prices
  std::vector<std::string> reasons;
  const std::string& strategy = compiled.entries[0].plan.strategy;

  // The same plan with all parameters trained.
  if (const Result<Graph> trained_step = training_step(*whole, language_model, full); trained_step.ok()) {
    const Result<Parts> trained = parts_of(*trained_step, strategy, full, *devices),
                        frozen = parts_of(step, strategy, settings, *devices);
    if (trained.ok() && frozen.ok()) {
      reasons.push_back(format(
          "Gradients and optimizer state take {} of the fullest device's {}; trained in full, this very plan "
          "would give them {} of {}",
          bytes_text(frozen->state), bytes_text(frozen->bytes), bytes_text(trained->state),
          bytes_text(trained->bytes)));
      if (const int64_t limit = compiled.memory_limit; limit > 0 && trained->bytes > limit)
        reasons.push_back(format("That is {} more than the limit", bytes_text(trained->bytes - limit)));
      std::string reduced;
      if (trained->reduced_s > 0)
        reduced = format(", and {} instead of {} goes to communication over dp",
                         seconds_text(frozen->reduced_s), seconds_text(trained->reduced_s));
      reasons.push_back(
          format("Products for gradients of frozen weights are left out: {} a step instead of {}{}",
                 seconds_text(frozen->step_s), seconds_text(trained->step_s), reduced));
    }
  }

  const Result<Compiled> best = compile_training(*whole, language_model, full, devices);
  if (!best.ok()) {
    reasons.push_back(format("Trained in full there would be no plan: {}", best.status().message()));
    return reasons;
  }
  const Plan& theirs = best->record->entries[0].plan;
  reasons.push_back(format(
      "Trained in full the best plan is '{}': {} a step and {}; here '{}': {} and {}", theirs.strategy,
      seconds_text(theirs.estimate.step_time_s), bytes_text(largest_arena(*best->record)), strategy,
      seconds_text(compiled.entries[0].plan.estimate.step_time_s), bytes_text(largest_arena(compiled))));
  if (const auto less = less_needed(strategy, theirs.strategy); !less.empty())
    reasons.push_back(format("So there is less need for {}", join(less, ", ")));
  return reasons;
}

}  // namespace tessera
