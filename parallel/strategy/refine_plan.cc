#include "parallel/strategy/refine_plan.h"

#include <algorithm>
#include <map>
#include <set>

#include "graph/analysis/block_scope.h"
#include "graph/base/text.h"
#include "parallel/sharding/node_sharding.h"
#include "parallel/sharding/parameter_copies.h"
#include "parallel/sharding/reshard.h"
#include "parallel/sharding/schedule.h"
#include "parallel/sharding/units.h"

namespace tessera {

namespace {

class PlanRefiner {
 public:
  PlanRefiner(const Graph& graph, const StrategySpec& spec, Plan& plan)
      : graph_(graph), spec_(spec), plan_(plan), mesh_(plan.stages[0].mesh) {
    for (const ParameterCopy& it : parameter_copies(graph))
      if (it.narrows) copies_.emplace(it.copy, it);
  }

  Status run() {
    if (spec_.recompute == RecomputeForm::kAuto || spec_.offload.automatic)
      return Status(StatusCode::kUnsupported,
                    format("parallel: 'auto' is the planner's to resolve before a plan is made (in '{}')",
                           to_text(spec_)));
    if (spec_.chunks > 1) TSR_RETURN_IF_ERROR(chunk_gathered_weights());
    if (spec_.recompute == RecomputeForm::kFull) TSR_RETURN_IF_ERROR(recompute_blocks());
    if (spec_.keep) keep_gathered();
    if (spec_.offload.any()) TSR_RETURN_IF_ERROR(offload());
    return {};
  }

 private:
  const Node& node(size_t n) const { return graph_.nodes()[n]; }
  const Tensor& tensor(TensorId id) const { return graph_.tensor(id); }

  // --- chunks ---

  Status chunk_gathered_weights() {
    std::map<TensorId, int> dims;  // by weight: the sliced dim
    std::map<TensorId, TensorId> weight_of;
    for (const Gradient& gradient : graph_.gradients()) weight_of[gradient.gradient] = gradient.parameter;
    for (size_t n = 0; n < graph_.nodes().size(); ++n) {
      if (node(n).phase == Phase::kUpdate || node(n).op->is_view) continue;
      TSR_ASSIGN_OR_RETURN(const NodeSharding sharding,
                           shard_node(graph_, NodeId{static_cast<uint32_t>(n)}, plan_.nodes[n], mesh_));
      const auto [weight, operand] = gathered_weight(n, sharding, weight_of);
      if (weight == kNoTensor) continue;
      if (!dims.contains(weight)) {
        const int dim = dim_to_slice(n, sharding, *operand);
        if (dim < 0) continue;
        dims[weight] = dim;
      }
      const MajorFactor major = major_factor(sharding.rule, (*operand)[static_cast<size_t>(dims[weight])]);
      if (major.name != 0) slice(n, sharding, major.name);
    }
    return {};
  }

  // The weight that this node gathers (or a copy of it), or
  // whose gradient it computes; and its dims in the rule.
  std::pair<TensorId, const ShardingRule::OperandDims*> gathered_weight(
      size_t n, const NodeSharding& sharding, const std::map<TensorId, TensorId>& weight_of) const {
    const auto gathers = [&](TensorId weight, const ShardingSpec& at_work) {
      const Tensor& it = tensor(weight);
      const StoredTensor* stored = plan_.find_stored(weight);
      return it.kind == TensorKind::kParameter && it.type.shape.rank() >= 2 && stored != nullptr &&
             !same_layout(stored->placements[0].stored, at_work, it.type.shape, mesh_);
    };
    for (size_t i = 0; i < node(n).inputs.size(); ++i) {
      const TensorId input = node(n).inputs[i];
      const auto copy = copies_.find(input);
      const TensorId weight = copy != copies_.end() ? copy->second.parameter : input;
      // Kept tensors are gathered once, whole.
      if (weight != input && std::ranges::binary_search(plan_.keep_gathered, input)) continue;
      if (reads_input(node(n), i) && gathers(weight, sharding.inputs[i]))
        return {weight, &sharding.rule.inputs[i]};
    }
    for (size_t o = 0; o < node(n).outputs.size(); ++o) {
      const auto at = weight_of.find(node(n).outputs[o]);
      ShardingSpec whole = sharding.outputs[o];
      whole.partial.clear();
      if (at != weight_of.end() && gathers(at->second, whole)) return {at->second, &sharding.rule.outputs[o]};
    }
    return {kNoTensor, nullptr};
  }

  static bool admits(const ShardingRule& rule, char name) {
    const Factor* factor = rule.find(name);
    return factor != nullptr && (factor->kind == FactorKind::kPass ||
                                 (factor->kind == FactorKind::kReduce && factor->reduce == ReduceKind::kSum));
  }

  // The contracted dim if the other operand has it; else (lookup, or needed whole) another.
  int dim_to_slice(size_t n, const NodeSharding& sharding, const ShardingRule::OperandDims& weight) const {
    const auto operands_with = [&](char name) {
      return std::ranges::count_if(sharding.rule.inputs, [&](const ShardingRule::OperandDims& dims) {
        return std::ranges::any_of(
            dims, [&](const std::string& dim) { return dim.find(name) != std::string::npos; });
      });
    };
    int other = -1;
    for (size_t d = 0; d < weight.size(); ++d) {
      const MajorFactor major = major_factor(sharding.rule, weight[d]);
      if (major.name == 0 || !admits(sharding.rule, major.name)) continue;
      const bool contracted = sharding.rule.find(major.name)->kind == FactorKind::kReduce;
      if (contracted && operands_with(major.name) > 1) return static_cast<int>(d);
      if (!contracted || node(n).inputs.size() < 2) other = static_cast<int>(d);
    }
    return other;
  }

  void slice(size_t n, const NodeSharding& sharding, char name) {
    if (!admits(sharding.rule, name)) return;
    const auto f = static_cast<size_t>(sharding.rule.find(name) - sharding.rule.factors.data());
    const DimSharding& split = sharding.factors[f];
    int64_t parts = 1;
    for (const AxisId axis : split.axes) parts *= mesh_.axis_size(axis);
    const int64_t unit = split.axes.empty() ? sharding.rule.factors[f].unit : split.unit;
    const int64_t units = sharding.rule.factors[f].extent / unit / parts;
    if (units < 2) return;
    plan_.nodes[n].chunk_factor = name;
    plan_.nodes[n].chunks = static_cast<int32_t>(std::min<int64_t>(spec_.chunks, units));
  }

  // --- recomputation ---

  // Gathered narrow copies, and their measures, are kept: a
  // rank holds a shard, and gathered data is released anyway.
  Status recompute_blocks() {
    plan_.recompute = block_activations(graph_);
    TSR_ASSIGN_OR_RETURN(const std::set<TensorId> gathered, gathered_copies());
    std::erase_if(plan_.recompute, [&](TensorId id) { return gathered.contains(id); });
    return {};
  }

  Result<std::set<TensorId>> gathered_copies() const {
    std::set<TensorId> gathered;
    for (size_t n = 0; n < graph_.nodes().size(); ++n)
      for (size_t i = 0; i < node(n).inputs.size(); ++i) {
        const TensorId input = node(n).inputs[i];
        const auto copy = copies_.find(input);
        if (copy == copies_.end() || !reads_input(node(n), i)) continue;
        TSR_ASSIGN_OR_RETURN(const NodeSharding made, sharding_of(copy->second.node));
        TSR_ASSIGN_OR_RETURN(const NodeSharding read, sharding_of(NodeId{static_cast<uint32_t>(n)}));
        if (same_layout(made.outputs[0], read.inputs[i], tensor(input).type.shape, mesh_)) continue;
        gathered.insert(input);
        for (const NodeId measure : copy->second.measures) gathered.insert(graph_.node(measure).outputs[0]);
      }
    return gathered;
  }

  Result<NodeSharding> sharding_of(NodeId id) const {
    return shard_node(graph_, id, plan_.nodes[index(id)], mesh_);
  }

  // --- kept gathers ---

  void keep_gathered() {
    plan_.keep_gathered.clear();
    for (size_t t = 0; t < graph_.tensors().size(); ++t) {
      const Tensor& it = graph_.tensors()[t];
      const bool forward = it.producer != kNoNode && graph_.node(it.producer).phase == Phase::kForward;
      if (forward || it.kind == TensorKind::kParameter)
        plan_.keep_gathered.push_back(TensorId{static_cast<uint32_t>(t)});
    }
  }

  // --- offload ---

  Status offload() {
    const OffloadWords& words = spec_.offload;
    std::set<TensorId> gradients;
    for (const Gradient& gradient : graph_.gradients()) gradients.insert(gradient.gradient);
    for (StoredTensor& stored : plan_.stored)
      for (Placement& placement : stored.placements) {
        if (tensor(stored.tensor).kind == TensorKind::kParameter) placement.tier = words.params;
        if (gradients.contains(stored.tensor)) placement.tier = words.grads;
      }
    if (words.optimizer != Tier::kDevice) offload_optimizer(words.optimizer);
    if (words.grads != Tier::kDevice) update_on_host();
    if (words.activations != Tier::kDevice) TSR_RETURN_IF_ERROR(offload_activations(words.activations));
    return {};
  }

  // State that an update node reads and replaces; the node then runs on the host.
  void offload_optimizer(Tier tier) {
    std::set<TensorId> replaced;
    for (const Update& update : graph_.updates()) replaced.insert(update.target);
    std::set<TensorId> moved;
    for (size_t n = 0; n < graph_.nodes().size(); ++n) {
      if (node(n).phase != Phase::kUpdate) continue;
      for (const TensorId input : node(n).inputs)
        if (tensor(input).kind == TensorKind::kState && tensor(input).type.shape.rank() > 0 &&
            replaced.contains(input)) {
          moved.insert(input);
          plan_.nodes[n].tier = Tier::kHost;
        }
    }
    for (StoredTensor& stored : plan_.stored)
      if (moved.contains(stored.tensor))
        for (Placement& placement : stored.placements) placement.tier = tier;
  }

  // Norm, scaling and update of offloaded gradients: bringing
  // them back for one would keep all until the last.
  void update_on_host() {
    for (size_t n = 0; n < graph_.nodes().size(); ++n)
      if (node(n).phase == Phase::kUpdate &&
          std::ranges::any_of(node(n).inputs, [&](TensorId id) { return tensor(id).type.shape.rank() > 0; }))
        plan_.nodes[n].tier = Tier::kHost;
  }

  Status offload_activations(Tier tier) {
    TSR_ASSIGN_OR_RETURN(const std::set<TensorId> gathered, gathered_copies());
    std::set<TensorId> saved;
    for (const Node& it : graph_.nodes()) {
      if (it.phase != Phase::kBackwardInput && it.phase != Phase::kBackwardWeight) continue;
      for (size_t i = 0; i < it.inputs.size(); ++i) {
        const Tensor& input = tensor(it.inputs[i]);
        if (reads_input(it, i) && input.kind == TensorKind::kActivation && input.type.shape.rank() > 1 &&
            graph_.node(input.producer).phase == Phase::kForward &&
            !std::ranges::binary_search(plan_.recompute, it.inputs[i]) && !gathered.contains(it.inputs[i]))
          saved.insert(it.inputs[i]);
      }
    }
    for (const TensorId id : saved) plan_.offload.push_back({id, tier});
    return {};
  }

  const Graph& graph_;
  const StrategySpec& spec_;
  Plan& plan_;
  const DeviceMesh& mesh_;
  std::map<TensorId, ParameterCopy> copies_;  // narrowing copies
};

}  // namespace

std::vector<TensorId> block_activations(const Graph& graph) {
  std::set<TensorId> leaves;  // read outside of the block by forward, or fetched
  for (const Node& it : graph.nodes())
    if (it.phase == Phase::kForward)
      for (const TensorId input : it.inputs)
        if (graph.tensor(input).producer != kNoNode &&
            block_scope(graph.node(graph.tensor(input).producer).scope) != block_scope(it.scope))
          leaves.insert(input);
  for (const NamedTensor& output : graph.outputs()) leaves.insert(output.tensor);
  std::vector<TensorId> inside;
  for (const Node& it : graph.nodes()) {
    if (it.phase != Phase::kForward || block_scope(it.scope).empty()) continue;
    for (const TensorId output : it.outputs)
      if (!leaves.contains(output)) inside.push_back(output);
  }
  std::ranges::sort(inside);
  return inside;
}

Status refine_plan(const Graph& graph, const StrategySpec& spec, Plan& plan) {
  return PlanRefiner(graph, spec, plan).run();
}

}  // namespace tessera
