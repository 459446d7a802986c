
#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "engine/model/rewrite.h"
#include "engine/program/entry_graphs.h"
#include "engine/program/explain.h"
#include "graph/base/text.h"
#include "graph/transform/adapters.h"
#include "graph/transform/weight_storage.h"
#include "parallel/planner/explain.h"
#include "parallel/pricing/simulator.h"
#include "parallel/strategy/strategy.h"

namespace tessera {
namespace {

// Parts of the fullest device's peak, and of the step.
struct Parts {
  int64_t state = 0;  // gradients and optimizer state
  int64_t bytes = 0;
  double step_s = 0, reduced_s = 0;  // reduced: communication over data-parallel ranks, hidden or not
};

// The parts of `step` under a plan.
Result<Parts> parts_of(const Graph& step, const Plan& plan, const Cluster& cluster,
                       const DeviceSet& devices) {
  const EntrySpec entry{"train_step", &step, &plan};
  TSR_ASSIGN_OR_RETURN(const Program program, lower(std::span(&entry, 1), devices.catalog()));
  TSR_ASSIGN_OR_RETURN(const Simulation simulation, simulate(program, "train_step", cluster));
  ExplainOptions plain;
  plain.drawings.wanted = false;
  TSR_ASSIGN_OR_RETURN(const Explanation it,
                       explain_program(std::span(&entry, 1), program, simulation, plain));
  Parts parts;
  parts.bytes = it.memory_bytes, parts.step_s = it.step_s;
  for (const MemoryShare& share : it.memory)
    if (share.tier == Tier::kDevice && (share.cause == "gradients" || share.cause == "optimizer"))
      parts.state += share.bytes;
  for (const TimeShare& share : it.time)
    if (share.axis.find("dp") != std::string::npos) parts.reduced_s += share.seconds + share.hidden_s;
  return parts;
}

// The forward nodes in both models, in order: all except those of adapters. The sum of a weight's matmul and
// its adapter's stands for the former.
std::vector<TensorId> values_of_model(const Graph& step, std::map<TensorId, TensorId>& joined) {
  std::set<std::string> names;
  for (const Adapter& adapter : find_adapters(step))
    names.insert({adapter.a, adapter.b, adapter.a0, adapter.b0, adapter.bias, adapter.magnitude});
  std::set<TensorId> adapter_tensors, scaled;
  std::vector<TensorId> values;
  for (const Node& node : step.nodes()) {
    if (node.phase != Phase::kForward) continue;
    const bool reads = std::ranges::any_of(node.inputs, [&](TensorId id) {
      return adapter_tensors.contains(id) || names.contains(step.tensor(id).name);
    });
    // With a magnitude the bias follows; without adapters it is the matmul's.
    if (node.op->algebra == Algebra::kBiased && scaled.contains(node.inputs[0])) {
      joined[node.outputs[0]] = joined[node.inputs[0]];
      continue;
    }
    if (is_adapter_dropout(node)) {
      adapter_tensors.insert(node.outputs.begin(), node.outputs.end());
      continue;
    }
    if (!reads) {
      values.insert(values.end(), node.outputs.begin(), node.outputs.end());
      continue;
    }
    const auto other = std::ranges::find_if(node.inputs, [&](TensorId id) { return !adapter_tensors.contains(id); });
    const bool scales = node.op->algebra == Algebra::kProduct;  // by a magnitude
    if (scales && other != node.inputs.end()) scaled.insert(node.outputs[0]);
    if ((scales || node.op->algebra == Algebra::kSum) && other != node.inputs.end())
      joined[node.outputs[0]] = joined.contains(*other) ? joined[*other] : *other;
    else
      adapter_tensors.insert(node.outputs.begin(), node.outputs.end());
  }
  return values;
}

// Translates the values in `set` from `from` to `to`, the same model with adapters or without.
std::vector<TensorId> carried(const std::vector<TensorId>& set, const Graph& from, const Graph& to) {
  std::map<TensorId, TensorId> joined, unused, place;
  const std::vector<TensorId> here = values_of_model(from, joined), there = values_of_model(to, unused);
  if (here.size() != there.size()) return {};
  for (size_t i = 0; i < here.size(); ++i) place[here[i]] = there[i];
  std::set<TensorId> found;
  for (const TensorId id : set) {
    const auto join = joined.find(id);
    if (const auto at = place.find(join == joined.end() ? id : join->second); at != place.end())
      found.insert(at->second);
  }
  return {found.begin(), found.end()};
}

// `plan` of `step` as a plan of `trained`: the same strategy on as many devices, with the same values
// recomputed or moved.
Result<Plan> same_plan(const Graph& step, const Plan& plan, StrategySpec spec, const Graph& trained,
                       const TrainerSettings& settings, const Cluster& cluster, const DeviceSet& devices) {
  const bool has_set = spec.recompute == RecomputeForm::kSome;
  if (has_set) spec.recompute = RecomputeForm::kNone;
  const std::string words = to_text(spec);
  PlanOptions options;
  options.global_batch = settings.batch;
  options.parallel = words == "single" ? "dp=1" : words;
  options.memory_limit = int64_t{1} << 60;
  options.advise = false;
  for (const auto& value : settings.symbols)
    for (const Symbol& symbol : trained.symbols())
      if (symbol.name == value.first) options.symbols.push_back(value);
  TSR_ASSIGN_OR_RETURN(PlanResult planned, make_plan(trained, cluster, devices.catalog(), options));
  if (has_set) {
    planned.plan.recompute = carried(plan.recompute, step, trained);
    if (spec.offload.activations != Tier::kDevice) {
      std::vector<TensorId> moved;
      for (const OffloadedTensor& it : plan.offload) moved.push_back(it.tensor);
      planned.plan.offload.clear();
      for (const TensorId id : carried(moved, step, trained))
        planned.plan.offload.push_back({id, spec.offload.activations});
      planned.plan.prefetch = plan.prefetch;
    }
    std::erase_if(planned.plan.offload, [&](const OffloadedTensor& moved) {
      return std::ranges::binary_search(planned.plan.recompute, moved.tensor);
    });
  }
  return std::move(planned.plan);
}

// Parts under the plan, and under the same one with all parameters trained.
std::pair<Result<Parts>, Result<Parts>> both(const Graph& step, const Plan& plan, const Graph& trained,
                                             const TrainerSettings& settings, const DeviceSet& devices) {
  const auto pins = parse_parallel(plan.strategy == "single" ? "dp=1" : plan.strategy);
  if (!pins.ok()) return {pins.status(), pins.status()};
  Cluster cluster = devices.cluster();
  if (const auto used = static_cast<size_t>(pins->spec.devices()); used < cluster.devices.size())
    cluster.devices.resize(used);
  const auto same = same_plan(step, plan, pins->spec, trained, settings, cluster, devices);
  return {parts_of(step, plan, cluster, devices),
          same.ok() ? parts_of(trained, *same, cluster, devices) : Result<Parts>(same.status())};
}

int64_t largest_arena(const PlanRecord& record) {
  int64_t bytes = 0;
  for (const PlanRecord::Device& device : record.devices) bytes = std::max(bytes, device.arena_bytes);
  return bytes;
}

// Describes where the frozen model's strategy needs less than full training's.
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
  if (step.gradients().empty() || settings.compute.has_given_plan()) return {};
  const std::vector<TensorId> parameters = step.tensors_of_kind(TensorKind::kParameter);
  if (std::ranges::all_of(parameters, [&](TensorId id) { return step.tensor(id).trainable; })) return {};

  const Result<LogicalGraph> logical = with_logical_weights(forward);
  if (!logical.ok()) return {};
  Result<Graph> whole = without_adapters(logical->graph);  // all parameters trainable
  if (!whole.ok()) return {};
  TrainerSettings full = finalized(settings, *devices);
  full.trained.clear(), full.frozen.clear();
  full.compute.trace = false;
  const bool is_fused = std::ranges::any_of(step.nodes(), [](const Node& node) {
    return node.op->loss.head != LossHead::kNone && node.op->loss.is_gradient;
  });
  full.fused_loss = is_fused ? FusedLoss::kOn : FusedLoss::kOff;
  full.compute.measure = 0;  // prices against prices
  full.compute.tune = false;
  std::vector<std::string> reasons;
  const std::string& strategy = compiled.entries[0].plan.strategy;

  // The same plan, with all parameters trained.
  if (const Result<Graph> trained_step = training_step(*whole, language_model, full); trained_step.ok()) {
    const auto [frozen, trained] = both(step, compiled.entries[0].plan, *trained_step, full, *devices);
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

  const Result<CompiledProgram> best = compile_training(*whole, language_model, full, devices);
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
