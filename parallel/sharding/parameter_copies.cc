#include "parallel/sharding/parameter_copies.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "parallel/sharding/node_sharding.h"
#include "parallel/sharding/schedule.h"

namespace tessera {

namespace {

// The nodes that measure the scalars read by `node` next
// to its parameter; nullopt if one is no such measure.
std::optional<std::vector<NodeId>> measures_of(const Graph& graph, const Node& node) {
  std::vector<NodeId> measures;
  for (size_t i = 1; i < node.inputs.size(); ++i) {
    const NodeId producer = graph.tensor(node.inputs[i]).producer;
    if (producer == kNoNode) return std::nullopt;
    const Node& measure = graph.node(producer);
    if (measure.phase != Phase::kForward || measure.inputs.size() != 1 || measure.outputs.size() != 1 ||
        measure.inputs[0] != node.inputs[0])
      return std::nullopt;
    measures.push_back(producer);
  }
  return measures;
}

// Assigns `spec`, dim by dim, to a node that reads only a parameter.
void place(const Graph& graph, NodeId id, const ShardingSpec& spec, Plan& plan) {
  const auto rule = rule_of(graph, graph.node(id));
  if (!rule.ok()) return;
  NodePlan& node_plan = plan.nodes[index(id)];
  node_plan.factor_axes.clear();
  node_plan.factor_units.clear();
  node_plan.factor_firsts.clear();
  for (size_t d = 0; d < spec.dims.size(); ++d) {
    if (spec.dims[d].axes.empty()) continue;
    const Factor* factor = rule->find(rule->inputs[0][d][0]);
    node_plan.factor_axes.emplace_back(factor->name, spec.dims[d].axes);
    if (spec.dims[d].unit != factor->unit)
      node_plan.factor_units.emplace_back(factor->name, spec.dims[d].unit);
    if (has_owner(spec.dims[d], graph.type(graph.node(id).inputs[0]).shape[static_cast<int>(d)]))
      node_plan.factor_firsts.emplace_back(factor->name, spec.dims[d].first);
  }
  std::ranges::sort(node_plan.factor_axes);
  std::ranges::sort(node_plan.factor_units);
  std::ranges::sort(node_plan.factor_firsts);
}

}  // namespace

bool is_elementwise(const ShardingRule& rule, const Node& node) {
  const auto is_scalar = [](const ShardingRule::OperandDims& dims) { return dims.empty(); };
  return !node.inputs.empty() && node.outputs.size() == 1 && rule.inputs[0] == rule.outputs[0] &&
         std::ranges::all_of(rule.inputs.begin() + 1, rule.inputs.end(), is_scalar) &&
         std::ranges::all_of(rule.inputs[0], [](const std::string& dim) { return dim.size() == 1; }) &&
         std::ranges::all_of(rule.factors,
                             [](const Factor& factor) { return factor.kind == FactorKind::kPass; });
}

std::vector<ParameterCopy> parameter_copies(const Graph& graph) {
  std::vector<ParameterCopy> copies;
  for (size_t n = 0; n < graph.nodes().size(); ++n) {
    const Node& node = graph.nodes()[n];
    if (node.phase != Phase::kForward || node.inputs.empty() || node.outputs.size() != 1 ||
        graph.tensor(node.inputs[0]).kind != TensorKind::kParameter)
      continue;
    auto measures = measures_of(graph, node);
    if (!measures) continue;
    const auto rule = rule_of(graph, node);
    if (!rule.ok() || !is_elementwise(*rule, node)) continue;
    const TensorType &from = graph.type(node.inputs[0]), &to = graph.type(node.outputs[0]);
    copies.push_back({NodeId{static_cast<uint32_t>(n)}, node.inputs[0], node.outputs[0],
                      bytes(to) < bytes(from), std::move(*measures)});
  }
  return copies;
}

std::vector<bool> read_as_narrow_copies(const Graph& graph, std::span<const ParameterCopy> copies) {
  std::vector<bool> copied(graph.tensors().size(), false), trained(copied),
      narrows(graph.nodes().size(), false);
  for (const Gradient& gradient : graph.gradients()) trained[index(gradient.parameter)] = true;
  for (const ParameterCopy& it : copies)
    if (it.narrows) {
      copied[index(it.parameter)] = narrows[index(it.node)] = true;
      for (const NodeId measure : it.measures) narrows[index(measure)] = true;
    }
  for (size_t t = 0; t < copied.size(); ++t) copied[t] = copied[t] && trained[t];
  for (size_t n = 0; n < graph.nodes().size(); ++n) {
    const Node& node = graph.nodes()[n];
    if (node.phase == Phase::kUpdate || narrows[n]) continue;
    for (size_t i = 0; i < node.inputs.size(); ++i)
      if (reads_input(node, i)) copied[index(node.inputs[i])] = false;
  }
  for (const NamedTensor& output : graph.outputs()) copied[index(output.tensor)] = false;
  return copied;
}

void place_narrow_copies(const Graph& graph, std::span<const ParameterCopy> copies, Plan& plan) {
  for (const ParameterCopy& it : copies) {
    const StoredTensor* stored = plan.find_stored(it.parameter);
    if (!it.narrows || stored == nullptr) continue;
    place(graph, it.node, stored->placements[0].stored, plan);
    for (const NodeId measure : it.measures) place(graph, measure, stored->placements[0].stored, plan);
  }
}

}  // namespace tessera
