// Chooses the factor of a node that an axis goes to.
#include <algorithm>

#include "graph/base/text.h"
#include "parallel/sharding/rule_factors.h"
#include "parallel/sharding/schedule.h"
#include "parallel/strategy/propagator.h"

namespace tessera {

// The factor of this node that axis `axis` of a tensor's layout is on.
const Factor* Propagator::factor_along(NodeId id, const ShardingSpec& spec,
                                       const ShardingRule::OperandDims& dims, AxisId axis) const {
  for (size_t d = 0; d < dims.size(); ++d) {
    if (!contains(spec.dims[d].axes, axis)) continue;
    const Factor* major = major_of(rule(id), dims[d]);
    // Behind the KV heads' axis: their queries, if heads and queries are separate factors.
    const size_t next = major == nullptr ? std::string::npos : dims[d].find(major->name) + 1;
    const bool second = axes_.group == axis && next < dims[d].size();
    const Factor* minor = second ? rule(id).find(dims[d][next]) : nullptr;
    const bool splits = minor != nullptr && minor->extent > 1 &&
                        (minor->kind == FactorKind::kPass || minor->kind == FactorKind::kReduce);
    return splits ? minor : major;
  }
  return nullptr;
}

const Factor* Propagator::batch_factor(NodeId id) const {
  const auto of_operand = [&](TensorId tensor, const ShardingRule::OperandDims& dims) -> const Factor* {
    const int batch = dims_.batch[index(tensor)];
    const Factor* factor = batch < 0 ? nullptr : major_of(rule(id), dims[static_cast<size_t>(batch)]);
    return factor == nullptr || factor->kind == FactorKind::kReplicate ? nullptr : factor;
  };
  for (size_t o = 0; o < node(id).outputs.size(); ++o)
    if (const Factor* factor = of_operand(node(id).outputs[o], rule(id).outputs[o])) return factor;
  for (size_t i = 0; i < node(id).inputs.size(); ++i)
    if (const Factor* factor = of_operand(node(id).inputs[i], rule(id).inputs[i])) return factor;
  return nullptr;
}

// For results [B, T, ...].
const Factor* Propagator::sequence_factor(NodeId id) const {
  const TensorId output = node(id).outputs[0];
  const int batch = dims_.batch[index(output)], sequence = dims_.sequence[index(output)];
  if (batch < 0 || sequence < 0 || graph_.type(output).shape.rank() < batch + 3) return nullptr;
  return major_of(rule(id), rule(id).outputs[0][static_cast<size_t>(sequence)]);
}

// The largest operand that arrives split over `axis`, except along the batch,
// keeps its layout; but if it would be summed over and the sum is larger than
// its inputs, the operand is gathered. `elements`: the size to beat.
const Factor* Propagator::arriving(NodeId id, const NodePlan& plan, AxisId axis, int64_t& elements) const {
  const Node& it = node(id);
  const Factor *along = nullptr, *batch = batch_factor(id);
  for (size_t i = 0; i < it.inputs.size(); ++i) {
    if (!reads_input(it, i) || !placed_[index(it.inputs[i])]) continue;
    const Factor* factor = factor_along(id, now_[index(it.inputs[i])], rule(id).inputs[i], axis);
    const int64_t size = graph_.type(it.inputs[i]).shape.elements();
    if (factor == nullptr || factor == batch || !admits(id, plan, *factor, axis) || size <= elements)
      continue;
    if (factor->kind == FactorKind::kReduce && graph_.type(it.outputs[0]).shape.elements() > size) continue;
    along = factor;
    elements = size;
  }
  return along;
}

// The size of the largest operand if all are addends over the
// axis and the sum may be deferred (ALGEBRA rule 3); else -1.
int64_t Propagator::carried_elements(NodeId id, AxisId axis) const {
  NodePlan plan;
  carry_sums(id, plan);
  int64_t elements = -1;
  if (contains(plan.carried, axis))
    for (const int i : rule(id).linear[static_cast<size_t>(plan.carry_set)])
      elements = std::max(elements, graph_.type(node(id).inputs[static_cast<size_t>(i)]).shape.elements());
  return elements;
}

// --- weights and features
// --------------------------------------------------------------------------------------

std::optional<Propagator::Weight> Propagator::weight_of(NodeId id) const {
  const Node& it = node(id);
  if (measures_[index(id)]) return std::nullopt;
  for (size_t i = 0; i < it.inputs.size(); ++i) {
    const Tensor& tensor = graph_.tensor(copied_[index(it.inputs[i])]);
    if (tensor.kind != TensorKind::kParameter || tensor.type.shape.rank() < 2 || !reads_input(it, i) ||
        copied_[index(it.outputs[0])] == copied_[index(it.inputs[i])])
      continue;
    Weight weight;
    weight.input = i;
    weight.looked_up = true;
    weight.placed = placed_[index(it.inputs[i])];
    for (const std::string& dim : rule(id).inputs[i]) {
      const Factor* factor = major_of(rule(id), dim);
      if (factor == nullptr) continue;
      bool shared = false;
      for (size_t j = 0; j < it.inputs.size(); ++j)
        shared = shared || (j != i && reads_input(it, j) && has(rule(id).inputs[j], factor->name) &&
                            graph_.type(it.inputs[j]).shape.rank() > 1);
      if (!has(rule(id).outputs[0], factor->name)) {
        // The splittable one of two factors missing in a scalar (a head with its loss).
        if (weight.contracted != nullptr && factor->kind == FactorKind::kReplicate) continue;
        weight.contracted = factor;
        weight.looked_up = !shared;
      } else if (shared) {
        if (factor->kind == FactorKind::kPass) weight.common = factor;
      } else {
        weight.brought = factor;
      }
    }
    if (weight.contracted != nullptr) return weight;
  }
  return std::nullopt;
}

Status Propagator::does_not_fit(NodeId id, TensorId weight, const Factor& factor, AxisId axis) const {
  const int64_t most = factor.extent / unit(id, factor);
  StrategySpec nearest = options_.spec;
  const auto side = static_cast<int32_t>(std::min<int64_t>(most, mesh().axis_size(axis)));
  auto& [x, y, z] = nearest.grid;
  if (nearest.form == TensorForm::k1d) nearest.tp = side;
  if (nearest.form == TensorForm::k2d) y = side;
  if (nearest.form == TensorForm::k25d) x = y = side;
  if (nearest.form == TensorForm::k3d) x = y = z = side;
  return Status(StatusCode::kInvalidArgument,
                format("'{}' does not fit '{}' of {}: its {} columns come in {} whole units of {} (heads, KV "
                       "groups); the nearest that fits is {}",
                       to_text(options_.spec), graph_.tensor(weight).name, describe(graph_, id),
                       factor.extent, most, unit(id, factor), tensor_words(nearest)));
}

// Whether the weight's operand arrives split over the axis along the
// weight's rows, not between whole blocks: too few for the ranks.
bool Propagator::is_cut_between_blocks(NodeId id, const Weight& weight, AxisId axis) const {
  if (axes_.grid || weight.looked_up || !is_packed(graph_, node(id), rule(id), weight.contracted->name))
    return false;
  for (size_t j = 0; j < node(id).inputs.size(); ++j) {
    const ShardingRule::OperandDims& dims = rule(id).inputs[j];
    const ShardingSpec& spec = now_[index(node(id).inputs[j])];
    if (j == weight.input || factor_along(id, spec, dims, axis) != weight.contracted) continue;
    for (size_t d = 0; d < dims.size(); ++d)
      if (contains(spec.dims[d].axes, axis))
        return spec.dims[d].unit % (major_factor(rule(id), dims[d]).span * unit(id, *weight.contracted)) != 0;
  }
  return false;
}

Result<const Factor*> Propagator::factor_of_weight(NodeId id, const NodePlan& plan, const Weight& weight,
                                                   AxisId axis) const {
  const TensorId tensor = node(id).inputs[weight.input];
  if (weight.placed) return factor_along(id, now_[index(tensor)], rule(id).inputs[weight.input], axis);
  const bool columns = weight.brought != nullptr && admits(id, plan, *weight.brought, axis);
  if (weight.looked_up) {
    if (axes_.grid && columns && !also_projects_[index(copied_[index(tensor)])]) return weight.brought;
    return admits(id, plan, *weight.contracted, axis) ? weight.contracted : nullptr;
  }
  // Such rows stay whole, and their operand is gathered.
  const bool whole_rows = is_cut_between_blocks(id, weight, axis);
  if (whole_rows) return columns ? weight.brought : nullptr;
  if (!axes_.grid)
    for (size_t j = 0; j < node(id).inputs.size(); ++j)
      if (j != weight.input &&
          factor_along(id, now_[index(node(id).inputs[j])], rule(id).inputs[j], axis) == weight.contracted)
        return weight.contracted;
  if (weight.brought == nullptr || columns) return weight.brought;
  // A few columns, or keys and values shared by a group of ranks: whole.
  if (unit(id, *weight.brought) == 1 || axes_.group == axis) return static_cast<const Factor*>(nullptr);
  return does_not_fit(id, tensor, *weight.brought, axis);
}

Status Propagator::assign_features(NodeId id, NodePlan& plan, AxisId axis) {
  const auto take = [&](const Factor* factor) {
    if (factor == nullptr || factor == batch_factor(id) || !admits(id, plan, *factor, axis)) return false;
    set(id, plan, *factor, {axis});
    return true;
  };
  const Node& it = node(id);
  for (size_t o = 0; o < it.outputs.size(); ++o) {
    const TensorId parameter = gradient_of_[index(it.outputs[o])];
    if (parameter != kNoTensor && take(factor_along(id, compute_spec(parameter), rule(id).outputs[o], axis)))
      return {};
  }
  const std::optional<Weight> weight = weight_of(id);
  if (weight) {
    TSR_ASSIGN_OR_RETURN(const Factor* factor, factor_of_weight(id, plan, *weight, axis));
    int& dim = contracted_dim_[index(copied_[index(it.inputs[weight->input])])];
    for (size_t d = 0; d < rule(id).inputs[weight->input].size() && !weight->placed; ++d)
      if (has({rule(id).inputs[weight->input][d]}, weight->contracted->name)) dim = static_cast<int>(d);
    // A weight with uncuttable rows is split along columns and its result
    // gathered: every rank then has the whole result, as after summing row parts.
    const bool whole_rows = is_cut_between_blocks(id, *weight, axis);
    if (take(factor)) {
      if (whole_rows) gathered_.push_back(axis);
      return {};
    }
    if (axes_.group == axis) return {};
  }
  int64_t elements = carried_elements(id, axis);
  const bool carried = elements >= 0;
  if (take(arriving(id, plan, axis, elements)) || carried) return {};
  if (options_.spec.sp && !weight) take(sequence_factor(id));
  // On a grid a sum is scattered over its reader's features.
  if (axes_.grid && !weight)
    for (size_t i = 0; i < it.inputs.size(); ++i) {
      const ShardingRule::OperandDims& dims = rule(id).inputs[i];
      if (!contains(now_[index(it.inputs[i])].partial, axis) || dims.empty()) continue;
      if (dims_.sequence[index(it.inputs[i])] + 1 == static_cast<int>(dims.size())) continue;  // [B, T]
      const Factor* last = major_of(rule(id), dims.back());
      if (last != nullptr && last->kind != FactorKind::kReduce && take(last)) return {};
    }
  return {};
}

// Matmuls contract along the axis of their operand and bring
// in the other, so that results have the next one's layout.
Status Propagator::assign_swapping_features(NodeId id, NodePlan& plan) {
  const Node& it = node(id);
  const Factor* batch = batch_factor(id);
  const auto take = [&](const Factor* factor, AxisId axis) {
    if (factor == nullptr || factor == batch || !admits(id, plan, *factor, axis)) return false;
    set(id, plan, *factor, {axis});
    return true;
  };
  for (size_t o = 0; o < it.outputs.size(); ++o) {
    const TensorId parameter = gradient_of_[index(it.outputs[o])];
    if (parameter == kNoTensor) continue;
    for (const AxisId axis : axes_.features)
      take(factor_along(id, compute_spec(parameter), rule(id).outputs[o], axis), axis);
    return {};
  }
  if (const std::optional<Weight> weight = weight_of(id)) {
    const TensorId tensor = it.inputs[weight->input];
    const ShardingRule::OperandDims& dims = rule(id).inputs[weight->input];
    if (weight->placed) {
      for (const AxisId axis : axes_.features) take(factor_along(id, now_[index(tensor)], dims, axis), axis);
      return {};
    }
    for (size_t d = 0; d < dims.size(); ++d)
      if (has({dims[d]}, weight->contracted->name))
        contracted_dim_[index(copied_[index(tensor)])] = static_cast<int>(d);
    AxisId from = weight->looked_up ? axes_.features[1] : axes_.features[0];
    for (size_t j = 0; j < it.inputs.size(); ++j)
      for (const AxisId axis : axes_.features)
        if (j != weight->input &&
            factor_along(id, now_[index(it.inputs[j])], rule(id).inputs[j], axis) == weight->contracted)
          from = axis;
    take(weight->contracted, from);
    const AxisId to = axes_.other(from);
    if (weight->brought != nullptr && !take(weight->brought, to) && unit(id, *weight->brought) > 1)
      return does_not_fit(id, tensor, *weight->brought, to);
    return {};
  }
  // One feature axis; the other splits the batch.
  const Factor* along = nullptr;
  AxisId axis = axes_.features[0];
  int64_t elements = -1;
  for (const AxisId feature : axes_.features)
    if (const Factor* factor = arriving(id, plan, feature, elements)) along = factor, axis = feature;
  take(along, axis);
  return {};
}

// --- experts, batch, updates
// -----------------------------------------------------------------------------------

Status Propagator::assign_experts(NodeId id, NodePlan& plan) const {
  if (!axes_.experts) return {};
  const AxisId axis = *axes_.experts;
  const Node& it = node(id);
  if (const std::optional<Weight> weight = weight_of(id); weight && weight->common != nullptr) {
    if (admits(id, plan, *weight->common, axis)) {
      set(id, plan, *weight->common, {axis});
      return {};
    }
    return Status(StatusCode::kInvalidArgument,
                  format("ep={} does not fit '{}' of {}: it has {} experts; the nearest that fits is ep={}",
                         options_.spec.ep, graph_.tensor(it.inputs[weight->input]).name, describe(graph_, id),
                         weight->common->extent, weight->common->extent));
  }
  for (size_t o = 0; o < it.outputs.size(); ++o) {
    const TensorId parameter = gradient_of_[index(it.outputs[o])];
    if (parameter == kNoTensor) continue;
    const Factor* factor = factor_along(id, compute_spec(parameter), rule(id).outputs[o], axis);
    if (factor != nullptr && admits(id, plan, *factor, axis)) set(id, plan, *factor, {axis});
    return {};
  }
  int64_t elements = -1;
  const Factor* along = arriving(id, plan, axis, elements);
  if (along != nullptr && along->kind == FactorKind::kPass) set(id, plan, *along, {axis});
  return {};
}

// Whether moving the weight's operand (forward, for its
// gradient, and back) sends less than reducing its gradient.
bool Propagator::is_wide(NodeId id, const Weight& weight) const {
  const auto elements = [&](TensorId tensor) { return graph_.type(tensor).shape.elements(); };
  int64_t applied_to = elements(node(id).outputs[0]);
  if (!weight.looked_up)
    for (size_t i = 0; i < node(id).inputs.size(); ++i)
      if (i != weight.input && has(rule(id).inputs[i], weight.contracted->name))
        applied_to = elements(node(id).inputs[i]);
  return 2 * elements(node(id).inputs[weight.input]) > (weight.looked_up ? 2 : 3) * applied_to;
}

// Columns of wide weights (rows of wide tables) are on the axis
// of the batch elsewhere, as is everything that depends on them.
void Propagator::assign_wide(NodeId id, NodePlan& plan) const {
  if (!axes_.wide || batch_whole_) return;
  const AxisId axis = *axes_.wide;
  const Node& it = node(id);
  const auto take = [&](const Factor* factor) {
    if (factor != nullptr && factor != batch_factor(id) && admits(id, plan, *factor, axis))
      set(id, plan, *factor, {axis});
  };
  for (size_t o = 0; o < it.outputs.size(); ++o)
    if (const TensorId parameter = gradient_of_[index(it.outputs[o])]; parameter != kNoTensor)
      return take(factor_along(id, compute_spec(parameter), rule(id).outputs[o], axis));
  int64_t elements = -1;
  const Factor* along = arriving(id, plan, axis, elements);
  if (const std::optional<Weight> weight = weight_of(id)) {
    if (weight->placed)
      take(factor_along(id, now_[index(it.inputs[weight->input])], rule(id).inputs[weight->input], axis));
    else if (is_wide(id, *weight))
      take(weight->looked_up || along == weight->contracted ? weight->contracted : weight->brought);
    return;
  }
  take(along);
}

void Propagator::assign_batch(NodeId id, NodePlan& plan) const {
  const Factor* factor = batch_factor(id);
  if (factor == nullptr) return;
  std::vector<AxisId> axes;
  for (const AxisId axis : batch_axes())
    if (!uses(plan, axis)) axes.push_back(axis);
  if (axes_.swaps() && !batch_whole_) {
    std::vector<AxisId> free;
    for (const AxisId axis : axes_.features)
      if (!uses(plan, axis)) free.push_back(axis);
    if (free.size() > 1) {
      // Without features: the layout of the largest operand.
      int64_t largest = -1;
      std::vector<AxisId> found;
      for (size_t i = 0; i < node(id).inputs.size(); ++i) {
        const TensorId input = node(id).inputs[i];
        const int dim = dims_.batch[index(input)];
        const int64_t elements = graph_.type(input).shape.elements();
        if (!reads_input(node(id), i) || dim < 0 || elements <= largest) continue;
        for (const AxisId axis : free)
          if (contains(now_[index(input)].dims[static_cast<size_t>(dim)].axes, axis)) {
            found = {axis};
            largest = elements;
          }
      }
      free = found;
    }
    for (const AxisId axis : free)
      if (carried_elements(id, axis) < 0 && !weight_of(id)) axes.push_back(axis);
  }
  set(id, plan, *factor, axes);
}

// Update nodes have the layout of their parameter's state.
void Propagator::assign_update(NodeId id, NodePlan& plan) {
  if (assign_owner(id, plan)) return;
  const Node& it = node(id);
  for (size_t i = 0; i < it.inputs.size(); ++i) {
    const TensorId parameter = graph_.tensor(it.inputs[i]).kind == TensorKind::kParameter
                                   ? it.inputs[i]
                                   : gradient_of_[index(it.inputs[i])];
    // The shape decides if there is no other operand (zeros).
    if (parameter == kNoTensor || (!reads_input(it, i) && it.inputs.size() > 1)) continue;
    const ShardingSpec& spec = state_spec(parameter);
    for (size_t d = 0; d < spec.dims.size(); ++d) {
      const std::string& dim = rule(id).inputs[i][d];
      const Factor* factor = dim.empty() ? nullptr : rule(id).find(dim[0]);
      if (factor == nullptr || factor->kind == FactorKind::kReplicate) continue;
      if (dim.size() == 1) {
        set_split(id, plan, *factor, spec.dims[d]);
      } else if (factor->extent >= parts(spec.dims[d].axes)) {  // a quantized dim is split in whole blocks
        set(id, plan, *factor, spec.dims[d].axes);
      }
    }
    return;
  }
}

}  // namespace tessera
