// Chooses the factor of a node that the context axis goes to: its sequence, or another where the sequence stays whole.
#include <algorithm>

#include "graph/base/text.h"
#include "parallel/sharding/rule_factors.h"
#include "parallel/sharding/schedule.h"
#include "parallel/strategy/propagator.h"

namespace tessera {

namespace {

bool sees_earlier_only(const Node& node) {
  for (const Attr& attr : node.attrs)
    if (attr.name == "causal" && attr.value == AttrValue(int64_t{1})) return true;
  return false;
}

}  // namespace

// Sums over tokens (slots of experts) have no sequence, but are split
// along the dim after the batch, onto which the sum is scattered.
const Factor* Propagator::factor_instead_of_sequence(NodeId id, const NodePlan& plan) const {
  const Node& it = node(id);
  const AxisId axis = *axes_.context;
  const bool makes_gradient = gradient_of_[index(it.outputs[0])] != kNoTensor;
  for (size_t i = 0; i < it.inputs.size(); ++i) {
    if (!reads_input(it, i) || !placed_[index(it.inputs[i])]) continue;
    const ShardingSpec& spec = now_[index(it.inputs[i])];
    const auto after_batch = static_cast<size_t>(dims_.batch[index(it.inputs[i])] + 1);
    const Factor* factor = factor_along(id, spec, rule(id).inputs[i], axis);
    if (factor == nullptr && contains(spec.partial, axis) && after_batch > 0 &&
        after_batch + 1 < spec.dims.size())
      factor = major_of(rule(id), rule(id).inputs[i][after_batch]);
    if (factor != nullptr && (factor->kind == FactorKind::kPass || makes_gradient) &&
        admits(id, plan, *factor, axis))
      return factor;
  }
  return nullptr;
}

void Propagator::assign_sequence(NodeId id, NodePlan& plan) const {
  if (!axes_.context || sequence_whole_) return;
  const std::string& factors = dims_.sequence_factors[index(id)];
  if (factors.empty())
    if (const Factor* factor = factor_instead_of_sequence(id, plan)) set(id, plan, *factor, {*axes_.context});
  if (factors.empty() || (factors.size() > 1 && options_.spec.context == ContextForm::kUlysses)) return;
  const Factor* factor = rule(id).find(factors[0]);
  if (admits(id, plan, *factor, *axes_.context)) set(id, plan, *factor, {*axes_.context});
}

// An op that needs its sequence whole (a scan) splits along another factor of its result (heads): the layout changes around
// it are exchanges. Not along one that a parameter has, which is whole over the axis.
void Propagator::assign_beside_sequence(NodeId id, NodePlan& plan) const {
  const std::string& factors = dims_.sequence_factors[index(id)];
  const Factor* sequence = factors.size() == 1 ? rule(id).find(factors[0]) : nullptr;
  if (sequence == nullptr || sequence->kind != FactorKind::kReplicate || sequence_factor(id) != sequence) return;
  const auto is_of_parameter = [&](const Factor& factor) {
    for (size_t i = 0; i < node(id).inputs.size(); ++i)
      if (graph_.tensor(copied_[index(node(id).inputs[i])]).kind == TensorKind::kParameter &&
          has(rule(id).inputs[i], factor.name))
        return true;
    return false;
  };
  for (const Factor& factor : rule(id).factors) {
    const bool splits = factor.kind == FactorKind::kPass || factor.kind == FactorKind::kReduce;
    if (!splits || &factor == batch_factor(id) || !has(rule(id).outputs[0], factor.name)) continue;
    if (is_of_parameter(factor) || !admits(id, plan, factor, *axes_.context)) continue;
    return set(id, plan, factor, {*axes_.context});
  }
}

// Two sequences meet: queries and keys.
Status Propagator::assign_meeting(NodeId id, NodePlan& plan) {
  if (!axes_.context || sequence_whole_) return {};
  assign_beside_sequence(id, plan);
  const std::string& factors = dims_.sequence_factors[index(id)];
  if (factors.size() < 2) return {};
  const AxisId axis = *axes_.context;
  const StrategySpec& spec = options_.spec;
  // A result with both (weights that mix tokens) is no sum
  // that could travel with the keys, so these are gathered.
  const bool crosses = std::ranges::any_of(rule(id).outputs, [&](const ShardingRule::OperandDims& dims) {
    return has(dims, factors[0]) && has(dims, factors[1]);
  });
  if (spec.context == ContextForm::kRing && uses(plan, axis) && !crosses) {
    plan.chunk_factor = factors[1];
    plan.chunks = spec.cp;
    plan.chunk_order = ChunkOrder::kRotating;
    const Factor* rows = rule(id).find(factors[0]);
    if (spec.zigzag && sees_earlier_only(node(id)) && rows->extent >= 2 * spec.cp) plan_.zigzag = {axis};
  }
  if (spec.context != ContextForm::kUlysses) return {};
  // A factor common to all operands along a sequence, except document numbers (segments): heads.
  const Factor* heads = nullptr;
  for (const Factor& factor : rule(id).factors) {
    bool everywhere = factor.kind == FactorKind::kPass && &factor != batch_factor(id) &&
                      factors.find(factor.name) == std::string::npos;
    for (size_t i = 0; i < node(id).inputs.size(); ++i)
      if (dims_.sequence[index(node(id).inputs[i])] >= 0 &&
          info(graph_.type(node(id).inputs[i]).dtype).is_float)
        everywhere = everywhere && has(rule(id).inputs[i], factor.name);
    if (everywhere && heads == nullptr) heads = &factor;
  }
  if (heads != nullptr && admits(id, plan, *heads, axis)) {
    set(id, plan, *heads, {axis});
    return {};
  }
  const std::vector<AxisId>* already = heads == nullptr ? nullptr : axes_of(plan, heads->name);
  const int64_t most =
      heads == nullptr ? 1 : heads->extent / unit(id, *heads) / (already == nullptr ? 1 : parts(*already));
  return Status(
      StatusCode::kInvalidArgument,
      format("cp=ulysses:{} does not fit {}: {} whole KV heads are left on a device; the nearest that "
             "fits is cp=ulysses:{}",
             spec.cp, describe(graph_, id), most, most));
}

}  // namespace tessera
