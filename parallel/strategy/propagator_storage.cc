// Determines stored layouts, after all factors are assigned.
#include <algorithm>

#include "parallel/sharding/reshard.h"
#include "parallel/strategy/propagator.h"
#include "parallel/strategy/zero.h"

namespace tessera {

const ShardingSpec& Propagator::parameter_spec(TensorId parameter) {
  const auto at = parameter_specs_.find(parameter);
  if (at != parameter_specs_.end()) return at->second;
  const TensorType& type = graph_.type(parameter);
  ShardingSpec spec = compute_spec(parameter);
  if (type.shape.rank() > 1)
    spec = spread(spec, axes_.spread, type, mesh(), contracted_dim_[index(parameter)]);
  return parameter_specs_.emplace(parameter, std::move(spec)).first->second;
}

const ShardingSpec& Propagator::state_spec(TensorId parameter) {
  const auto at = state_specs_.find(parameter);
  if (at != state_specs_.end()) return at->second;
  if (const ShardingSpec* stored = spec_of_stored_gradient(parameter); stored != nullptr)
    return state_specs_.emplace(parameter, *stored).first->second;
  const ShardingSpec& base = parameter_spec(parameter);
  std::vector<AxisId> axes;
  for (const AxisId axis : axes_.zero)
    if (!base.uses(axis)) axes.push_back(axis);
  std::optional<ShardingSpec> whole = axes.empty() ? std::nullopt : owned(parameter, base);
  ShardingSpec spec = whole ? std::move(*whole) : spread(base, axes, graph_.type(parameter), mesh());
  return state_specs_.emplace(parameter, std::move(spec)).first->second;
}

// The layout of a gradient that is state filled by another entry; null if it
// is computed here. No forward node here determines the parameter's split.
const ShardingSpec* Propagator::spec_of_stored_gradient(TensorId parameter) const {
  for (const Gradient& gradient : graph_.gradients()) {
    const Tensor& tensor = graph_.tensor(gradient.gradient);
    if (gradient.parameter != parameter || tensor.kind != TensorKind::kState) continue;
    const auto kept = options_.stored.find(tensor.name);
    return kept == options_.stored.end() ? nullptr : &kept->second;
  }
  return nullptr;
}

void Propagator::store() {
  const int32_t zero = options_.spec.zero;
  // Below zero 3 a parameter read only through narrow copies
  // has its state's layout: a step gathers the copies once.
  // Not on grids, where weights are gathered for every pass.
  const std::vector<bool> has_only_copies = zero > 0 && axes_.spread.empty()
                                                ? read_as_narrow_copies(graph_, copies_)
                                                : std::vector<bool>(graph_.tensors().size(), false);
  std::map<TensorId, ShardingSpec> stored;
  for (size_t t = 0; t < graph_.tensors().size(); ++t) {
    const TensorId id{static_cast<uint32_t>(t)};
    const Tensor& tensor = graph_.tensor(id);
    if (tensor.kind == TensorKind::kActivation) continue;
    stored[id] = now_[t];
    if (tensor.kind == TensorKind::kParameter)
      stored[id] = zero == 3 || has_only_copies[t] ? state_spec(id) : parameter_spec(id);
  }
  for (const Gradient& gradient : graph_.gradients()) {
    ShardingSpec spec = produced(gradient.gradient);
    // Spread at once over the axes of the parameter (zero 2: the
    // state); other partial axes wait until all micro-batches are done.
    const ShardingSpec& wanted =
        zero >= 2 ? state_spec(gradient.parameter) : parameter_spec(gradient.parameter);
    if (zero >= 2 || !axes_.spread.empty()) {
      std::erase_if(spec.partial, [&](AxisId axis) { return wanted.uses(axis); });
      spec.dims = wanted.dims;
    }
    stored[gradient.gradient] = spec;
  }
  for (size_t n = 0; n < graph_.nodes().size(); ++n) store_state(NodeId{static_cast<uint32_t>(n)}, stored);
  for (auto& [id, spec] : stored) {
    const Tensor& tensor = graph_.tensor(id);
    const auto kept = options_.stored.find(tensor.name);
    if (kept != options_.stored.end() && tensor.kind != TensorKind::kInput &&
        tensor.kind != TensorKind::kActivation)
      spec = kept->second;
    plan_.stored.push_back({id, {{0, spec, Tier::kDevice}}});
  }
  place_narrow_copies(graph_, copies_, plan_);
  if (zero < 3 && axes_.spread.empty())
    for (const ParameterCopy& it : copies_)
      if (it.narrows && !same_layout(stored[it.parameter], compute_spec(it.parameter),
                                     graph_.type(it.parameter).shape, mesh()))
        plan_.keep_gathered.push_back(it.copy);
  std::ranges::sort(plan_.keep_gathered);
}

// Optimizer state has its update node's layout.
void Propagator::store_state(NodeId id, std::map<TensorId, ShardingSpec>& stored) const {
  if (node(id).phase != Phase::kUpdate) return;
  const auto sharding = shard_node(graph_, id, plan_.nodes[index(id)], mesh());
  if (!sharding.ok()) return;
  for (size_t i = 0; i < node(id).inputs.size(); ++i)
    if (graph_.tensor(node(id).inputs[i]).kind == TensorKind::kState && !placed_[index(node(id).inputs[i])])
      stored[node(id).inputs[i]] = sharding->inputs[i];
}

ShardingSpec Propagator::produced(TensorId id) const {
  const Tensor& tensor = graph_.tensor(id);
  if (tensor.producer == kNoNode) return now_[index(id)];
  const auto sharding = shard_node(graph_, tensor.producer, plan_.nodes[index(tensor.producer)], mesh());
  return sharding.ok() ? sharding->outputs[tensor.output_index] : now_[index(id)];
}

}  // namespace tessera
