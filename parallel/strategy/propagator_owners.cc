// Owners: an update that needs a whole matrix (Muon) is computed by one of the ranks that would repeat it.
// With spread state (ZeRO), the owner also has the parameter's state; otherwise its result goes to all.
#include <algorithm>
#include <vector>

#include "parallel/strategy/propagator.h"

namespace tessera {

// Axes over which matrices are distributed.
std::vector<AxisId> Propagator::owner_axes() const {
  if (axes_.grid) return {};
  if (options_.spec.zero > 0) return axes_.zero;
  std::vector<AxisId> axes;
  for (const AxisId axis : axes_.batch)
    if (axes_.experts != axis) axes.push_back(axis);
  return axes;
}

// The most expensive matrix first, each to the least loaded rank; equal ones in turn.
void Propagator::mark_owners() {
  const int64_t ranks = parts(owner_axes());
  if (ranks < 2) return;
  struct Matrix {
    TensorId parameter;
    double flops;
  };
  std::vector<Matrix> matrices;
  std::vector<TensorId> matrix_of(graph_.tensors().size(), kNoTensor);  // by tensor of the update phase
  for (size_t n = 0; n < graph_.nodes().size(); ++n) {
    const NodeId id{static_cast<uint32_t>(n)};
    const Node& it = node(id);
    if (it.phase != Phase::kUpdate) continue;
    TensorId parameter = kNoTensor;
    for (const TensorId input : it.inputs) {
      if (parameter != kNoTensor) break;
      parameter = graph_.tensor(input).kind == TensorKind::kParameter ? input
                  : gradient_of_[index(input)] != kNoTensor           ? gradient_of_[index(input)]
                                                                      : matrix_of[index(input)];
    }
    if (parameter == kNoTensor) continue;
    for (const TensorId output : it.outputs)
      if (graph_.type(output).shape == graph_.type(parameter).shape) matrix_of[index(output)] = parameter;
    const bool reads_owned = std::ranges::any_of(
        it.inputs, [&](TensorId input) { return owned_by_.contains(graph_.tensor(input).producer); });
    if (reads_owned) owned_by_[id] = parameter;
    const bool is_one_matrix =
        it.inputs.size() == 1 && it.outputs.size() == 1 && rule(id).inputs[0] == rule(id).outputs[0];
    if (!is_one_matrix || !needs_whole(rule(id)) ||
        graph_.type(it.inputs[0]).shape != graph_.type(parameter).shape)
      continue;
    const std::vector<TensorType> in = {graph_.type(it.inputs[0])}, out = {graph_.type(it.outputs[0])};
    matrices.push_back({parameter, it.op->cost({it.attrs, in, out, {}}).flops});
    owned_by_[id] = parameter;
  }
  std::ranges::stable_sort(matrices, std::ranges::greater{}, &Matrix::flops);
  std::vector<double> loads(static_cast<size_t>(ranks), 0);
  for (const Matrix& matrix : matrices) {
    const auto least = std::ranges::min_element(loads);
    *least += matrix.flops;
    owners_[matrix.parameter] = static_cast<int32_t>(least - loads.begin());
  }
}

// The owner axis is on the first unsplit dim.
std::optional<ShardingSpec> Propagator::owned(TensorId parameter, const ShardingSpec& base) const {
  const auto owner = owners_.find(parameter);
  if (owner == owners_.end()) return std::nullopt;
  const std::vector<AxisId> axes = owner_axes();
  if (std::ranges::any_of(axes, [&](AxisId axis) { return base.uses(axis); })) return std::nullopt;
  const Shape& shape = graph_.type(parameter).shape;
  for (int d = 0; d < shape.rank(); ++d) {
    if (!base.dims[static_cast<size_t>(d)].axes.empty() || shape[d] == 0) continue;
    ShardingSpec spec = base;
    spec.dims[static_cast<size_t>(d)] = {axes, shape[d], owner->second};
    return spec;
  }
  return std::nullopt;
}

// Whether an owner computes the node, on its part of the state's layout; nodes that need
// whole operands have the part's other dims whole. Readers of an owner's result are the
// owner's too: other ranks wait only for the new value, and meanwhile compute their own.
bool Propagator::assign_owner(NodeId id, NodePlan& plan) {
  const auto at = owned_by_.find(id);
  if (at == owned_by_.end()) return false;
  const TensorId parameter = at->second;
  const Shape& shape = graph_.type(parameter).shape;
  const auto owner_dim = [&](const ShardingSpec& spec) {
    int d = 0;
    while (d < shape.rank() && !has_owner(spec.dims[static_cast<size_t>(d)], shape[d])) ++d;
    return d;
  };
  ShardingSpec spec = state_spec(parameter);
  if (owner_dim(spec) == shape.rank()) {
    std::optional<ShardingSpec> of_state = owned(parameter, spec);
    if (!of_state) of_state = owned(parameter, ShardingSpec::replicated(shape.rank()));
    if (!of_state) return false;
    spec = std::move(*of_state);
  }
  const Node& it = node(id);
  size_t operand = 0;
  while (graph_.type(it.inputs[operand]).shape != shape) ++operand;
  const bool is_whole = needs_whole(rule(id));
  for (int d = 0; d < shape.rank(); ++d) {
    const DimSharding& split = spec.dims[static_cast<size_t>(d)];
    if (split.axes.empty() || (is_whole && d != owner_dim(spec))) continue;
    set_split(id, plan, *rule(id).find(rule(id).inputs[operand][static_cast<size_t>(d)][0]), split);
  }
  return true;
}

}  // namespace tessera
