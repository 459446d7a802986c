#include "parallel/strategy/state_plan.h"

#include <algorithm>
#include <map>
#include <optional>

#include "graph/base/text.h"
#include "parallel/sharding/node_sharding.h"
#include "parallel/sharding/units.h"

namespace tessera {

namespace {

// Splits the node like its first operand.
NodePlan follow_first_operand(const ShardingRule& rule, const ShardingSpec& spec) {
  NodePlan plan;
  for (size_t d = 0; d < spec.dims.size(); ++d) {
    if (spec.dims[d].axes.empty()) continue;
    const MajorFactor major = major_factor(rule, rule.inputs[0][d]);
    const Factor* const factor = rule.find(major.name);
    if (factor == nullptr) continue;
    plan.factor_axes.emplace_back(factor->name, spec.dims[d].axes);
    if (const int64_t unit = std::max<int64_t>(1, spec.dims[d].unit / major.span); unit != factor->unit)
      plan.factor_units.emplace_back(factor->name, unit);
  }
  std::ranges::sort(plan.factor_axes);
  std::ranges::sort(plan.factor_units);
  return plan;
}

}  // namespace

Result<Plan> plan_along_state(const Graph& graph, std::vector<std::pair<std::string, int64_t>> symbols,
                              const Graph& owner_graph, const Plan& owner) {
  TSR_ASSIGN_OR_RETURN(const Graph bound, graph.bind(symbols));
  Plan plan;
  plan.graph_fingerprint = graph.fingerprint();
  plan.strategy = owner.strategy;
  plan.stages = owner.stages;
  plan.schedule = owner.schedule;
  plan.global_batch = owner.global_batch;
  plan.symbols = std::move(symbols);
  std::map<TensorId, std::vector<Placement>> placed;  // for the bound graph
  for (const TensorId id : bound.tensors_of_kind(TensorKind::kState)) {
    const auto known = owner_graph.find_tensor(bound.tensor(id).name);
    const StoredTensor* const stored = known ? owner.find_stored(*known) : nullptr;
    if (stored == nullptr)
      return Status(StatusCode::kInternal, format("no plan has placed state '{}'", bound.tensor(id).name));
    placed[id] = stored->placements;
  }
  for (size_t n = 0; n < bound.nodes().size(); ++n) {
    const NodeId id{static_cast<uint32_t>(n)};
    const Node& node = bound.node(id);
    const Placement& first = placed.at(node.inputs[0])[0];
    TSR_ASSIGN_OR_RETURN(const ShardingRule rule, rule_of(bound, node));
    NodePlan node_plan = follow_first_operand(rule, first.stored);
    node_plan.stage = first.mesh;
    const DeviceMesh& mesh = plan.stages[static_cast<size_t>(node_plan.stage)].mesh;
    TSR_ASSIGN_OR_RETURN(const NodeSharding sharding, shard_node(bound, id, node_plan, mesh));
    for (size_t i = 1; i < node.inputs.size(); ++i) {
      if (bound.tensor(node.inputs[i]).kind != TensorKind::kInput) continue;
      std::vector<Placement>& of_input = placed[node.inputs[i]];  // one per device group
      const auto same_devices = [&](const Placement& it) {
        return plan.stages[static_cast<size_t>(it.mesh)].mesh.devices == mesh.devices;
      };
      if (std::ranges::none_of(of_input, same_devices))
        of_input.push_back({node_plan.stage, sharding.inputs[i], Tier::kDevice});
    }
    for (size_t o = 0; o < node.outputs.size(); ++o)
      placed[node.outputs[o]] = {{node_plan.stage, sharding.outputs[o], Tier::kDevice}};
    plan.nodes.push_back(std::move(node_plan));
  }
  for (auto& [id, placements] : placed)
    if (bound.tensor(id).kind != TensorKind::kActivation) plan.stored.push_back({id, std::move(placements)});
  return plan;
}

}  // namespace tessera
