// PlanBounds, memory: lower bounds of a strategy's bytes.
#include <algorithm>
#include <map>
#include <set>

#include "graph/analysis/block_scope.h"
#include "parallel/pipeline/pipeline_schedule.h"
#include "parallel/planner/plan_bound.h"
#include "parallel/sharding/schedule.h"

namespace tessera {

// Finds parameters that a single block reads, and their optimizer state.
void PlanBounds::find_blocks() {
  if (space_.blocks == 0) return;
  std::map<TensorId, std::string_view> block_of;  // empty: also read elsewhere
  for (const Node& node : graph_.nodes()) {
    if (node.phase != Phase::kForward) continue;
    for (const TensorId input : node.inputs)
      if (graph_.tensor(input).kind == TensorKind::kParameter) {
        const auto [at, is_new] = block_of.try_emplace(input, block_scope(node.scope));
        if (!is_new && at->second != block_scope(node.scope)) at->second = {};
      }
  }
  std::map<std::string_view, int64_t> parameters, states;
  for (const auto& [id, block] : block_of)
    if (!block.empty()) parameters[block] += tessera::bytes(graph_.type(id));
  for (const Gradient& it : graph_.gradients())
    if (const auto at = block_of.find(it.parameter); at != block_of.end()) block_of[it.gradient] = at->second;
  std::set<TensorId> counted;
  for (const Node& node : graph_.nodes()) {
    if (node.phase != Phase::kUpdate) continue;
    std::string_view block;
    for (const TensorId input : node.inputs)
      if (const auto at = block_of.find(input); at != block_of.end()) block = at->second;
    if (block.empty()) continue;
    for (const TensorId input : node.inputs) {
      const Tensor& it = graph_.tensor(input);
      if (it.kind == TensorKind::kState && it.type.shape.rank() > 0 && it.type.shape.is_concrete() &&
          counted.insert(input).second)
        states[block] += tessera::bytes(it.type);
    }
  }
  const auto least = [&](const std::map<std::string_view, int64_t>& of) {
    if (static_cast<int64_t>(of.size()) < space_.blocks) return int64_t{0};
    return std::ranges::min_element(of, {}, [](const auto& it) { return it.second; })->second;
  };
  block_parameter_bytes_ = least(parameters);
  block_state_bytes_ = least(states);
}

int64_t PlanBounds::parameter_bytes(const StrategySpec& spec) const {
  const int64_t cut = int64_t{spec.tp} * spec.pp * spec.ep, all = cut * spec.dp * spec.cp;
  const int64_t spread = spec.zero == 3 ? parameter_bytes_ : spec.zero >= 1 ? narrowed_bytes_ : 0;
  return spread / all + (parameter_bytes_ - spread) / cut;
}

// Other sets of recomputed or offloaded values may hold none.
int64_t PlanBounds::waiting_copies(const StrategySpec& spec) const {
  if (!space_.trains || spec.form != TensorForm::k1d || spec.recompute != RecomputeForm::kNone ||
      spec.offload.activations != Tier::kDevice)
    return 0;
  const int64_t cut = int64_t{spec.tp} * spec.pp * spec.ep;
  return copies_bytes_ / (spec.zero == 3 ? cut * spec.dp * spec.cp : cut);
}

int64_t PlanBounds::persistent_bytes(const StrategySpec& spec) const {
  const int64_t cut = int64_t{spec.tp} * spec.pp * spec.ep, all = cut * spec.dp * spec.cp;
  int64_t total = 0;
  if (spec.offload.params == Tier::kDevice) total += parameter_bytes(spec);
  if (spec.offload.optimizer == Tier::kDevice) total += state_bytes_ / (spec.zero >= 1 ? all : cut);
  return total;
}

// A stage's values of all micro-batches ahead of its first backward exist at once.
const PlanBounds::InFlight& PlanBounds::in_flight(const StrategySpec& spec) {
  PipelineShape shape{spec.schedule, spec.pp, spec.virtual_stages, static_cast<int32_t>(cuts_of(spec).count)};
  const auto [at, is_new] = in_flight_.try_emplace(
      {static_cast<int32_t>(shape.kind), shape.devices, shape.virtual_stages, shape.micro_batches});
  if (!is_new) return at->second;
  at->second.inverses = spec.pp;
  at->second.held.assign(static_cast<size_t>(spec.pp), 1);
  if (spec.pp == 1) return at->second;
  const auto schedule = make_pipeline_schedule(shape);
  if (!schedule.ok()) return at->second;
  at->second.inverses = 0;
  at->second.held.clear();
  for (const std::vector<PipelineAction>& actions : schedule->devices) {
    std::map<int32_t, std::set<int32_t>> held;  // by stage of the device: micro-batches
    for (const PipelineAction& action : actions) held[action.stage];
    int32_t most = 1;
    for (const PipelineAction& action : actions) {
      if (action.work == PipelineWork::kForward)
        held[action.stage].insert(action.micro_batch);
      else
        held[action.stage].erase(action.micro_batch);
      size_t least = SIZE_MAX;
      for (const auto& [stage, of_stage] : held) least = std::min(least, of_stage.size());
      most = std::max(most, static_cast<int32_t>(least));
    }
    at->second.held.push_back(most);
    at->second.inverses += 1.0 / most;
    at->second.most = std::max(at->second.most, most);
  }
  return at->second;
}

int64_t PlanBounds::saved_activation_bytes(const StrategySpec& spec, const Phases& phases) const {
  if (!space_.trains || spec.form != TensorForm::k1d || spec.recompute == RecomputeForm::kSome) return 0;
  int64_t waiting = 0;
  for (const Saved& it : phases.saved) {
    if (it.block >= 0 && spec.recompute == RecomputeForm::kFull) continue;
    if (it.may_leave && spec.offload.activations != Tier::kDevice) continue;
    waiting += it.bytes;
  }
  return waiting;
}

PlanBounds::BlockBytes PlanBounds::block_bytes(const StrategySpec& spec, const Phases& phases) const {
  if (spec.pp == 1 || space_.blocks == 0) return {};
  const int64_t cut = int64_t{spec.tp} * spec.ep, all = cut * spec.dp * spec.cp;
  BlockBytes least;
  least.blocks = space_.blocks;
  if (spec.offload.params == Tier::kDevice)
    least.lasting +=
        block_parameter_bytes_ / (spec.zero == 3 || (spec.zero > 0 && narrowed_bytes_ > 0) ? all : cut);
  if (spec.offload.optimizer == Tier::kDevice)
    least.lasting += block_state_bytes_ / (spec.zero >= 1 ? all : cut);
  if (!space_.trains || spec.form != TensorForm::k1d || spec.recompute != RecomputeForm::kNone ||
      phases.blocks < space_.blocks)
    return least;
  std::vector<int64_t> waiting(static_cast<size_t>(phases.blocks), 0);
  for (const Saved& it : phases.saved)
    if (it.block >= 0 && !(it.may_leave && spec.offload.activations != Tier::kDevice))
      waiting[static_cast<size_t>(it.block)] += it.bytes;
  least.waiting = std::ranges::min(waiting);
  return least;
}

int64_t PlanBounds::other_bytes(const StrategySpec& spec) const {
  int64_t total = persistent_bytes(spec);
  // Sums that exist when the second micro-batch has gone forward.
  if (spec.offload.grads == Tier::kDevice && spec.pp == 1 && cuts_of(spec).count > 1) {
    const int64_t cut = int64_t{spec.tp} * spec.ep * (spec.zero >= 1 ? spec.dp * spec.cp : 1);
    for (const Exchanged& it : exchanged_) total += it.gradient / cut;
  }
  return total;
}

// Stages may distribute saved values, and other bytes, freely. If stage s holds n_s
// micro-batches, sum w_s = W of the values of one and sum o_s = O, and none exceeds
// x: n_s w_s + o_s <= x, so W <= sum (x - o_s) / n_s <= x sum 1/n_s - O / max n_s.
int64_t PlanBounds::bytes(const StrategySpec& spec) {
  const InFlight& held = in_flight(spec);
  const auto waiting = static_cast<double>(saved_activation_bytes(spec, phases_of(spec)));
  const auto others = static_cast<double>(other_bytes(spec) + waiting_copies(spec));
  const double shared = (waiting + others * spec.pp / held.most) / held.inverses;
  int64_t fullest = std::max(other_bytes(spec) + waiting_copies(spec), static_cast<int64_t>(shared));
  // Cut between blocks: each goes to the device then least full.
  if (const BlockBytes block = block_bytes(spec, phases_of(spec)); block.blocks > 0) {
    std::vector<int64_t> full(held.held.size(), 0);
    const auto with_one = [&](size_t d) { return full[d] + held.held[d] * block.waiting + block.lasting; };
    for (int64_t i = 0; i < block.blocks; ++i) {
      size_t next = 0;
      for (size_t d = 1; d < full.size(); ++d)
        if (with_one(d) < with_one(next)) next = d;
      full[next] = with_one(next);
    }
    fullest = std::max(fullest, std::ranges::max(full));
  }
  return fullest;
}

const PlanBounds::LargestKernel& PlanBounds::largest_kernel(int64_t batch) {
  const auto [at, is_new] = largest_.try_emplace(batch);
  LargestKernel& most = at->second;
  if (!is_new) return most;
  const Result<Graph> bound = bind_batch(batch);
  if (!bound.ok()) return most;  // no bound
  for (const Node& node : bound->nodes()) {
    // Updates may run next to their state, on the host.
    if (node.op->is_view || node.phase == Phase::kUpdate) continue;
    std::map<TensorId, int64_t> values, parameters;  // by root: the largest view
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (!reads_input(node, i)) continue;
      const TensorId root = viewed(*bound, node.inputs[i]);
      const TensorKind kind = bound->tensor(root).kind;
      if (kind != TensorKind::kActivation && kind != TensorKind::kParameter) continue;
      int64_t& size = (kind == TensorKind::kParameter ? parameters : values)[root];
      size = std::max(size, tessera::bytes(bound->type(node.inputs[i])));
    }
    int64_t used = 0, weights = 0;
    for (const auto& [id, size] : values) used += size;
    for (const auto& [id, size] : parameters) weights += size;
    // Results may reuse operands' buffers.
    for (size_t o = 0; o < node.outputs.size(); ++o)
      if (o >= node.op->in_place.size() || node.op->in_place[o] < 0) used += tessera::bytes(bound->type(node.outputs[o]));
    if (parameters.empty() && node.phase != Phase::kBackwardWeight) {
      most.other = std::max(most.other, used);
      continue;
    }
    most.product = std::max(most.product, used);
    most.weighted = std::max(most.weighted, used + weights);
  }
  for (const TensorId id : bound->tensors_of_kind(TensorKind::kInput)) most.inputs += tessera::bytes(bound->type(id));
  return most;
}

int64_t PlanBounds::input_bytes(const StrategySpec& spec) {
  const Cuts cuts = cuts_of(spec);
  return cuts.count * largest_kernel(cuts.batch).inputs / (int64_t{spec.tp} * spec.cp * spec.ep);
}

int64_t PlanBounds::working_bytes(const StrategySpec& spec) {
  // Weights instead of sequences are split; other parts apply.
  if (spec.owt) return 0;
  const LargestKernel& most = largest_kernel(cuts_of(spec).batch);
  // Gathered or fetched copies exist in addition to stored ones.
  const bool comes = spec.offload.params != Tier::kDevice || (spec.zero == 3 && spec.data() * spec.cp > 1);
  const int64_t product = (comes ? most.weighted : most.product) / spec.chunks;
  // All ranks of a stage run the kernel, so the fullest holds at least the average.
  const int64_t at_work = std::max(most.other, product) / (int64_t{spec.tp} * spec.cp * spec.ep);
  // A pipeline's kernel may be on a stage without the input.
  return spec.pp == 1 ? at_work + input_bytes(spec) : at_work;
}

}  // namespace tessera
