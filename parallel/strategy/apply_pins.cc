#include "parallel/strategy/apply_pins.h"

#include <algorithm>

#include "graph/base/nearest_hint.h"
#include "graph/base/text.h"
#include "graph/base/wildcard.h"
#include "parallel/sharding/node_sharding.h"
#include "parallel/sharding/parameter_copies.h"

namespace tessera {

namespace {

Status bad(std::string what) { return Status(StatusCode::kInvalidArgument, "pins: " + what); }

bool is_stored(const Tensor& tensor) {
  return tensor.kind == TensorKind::kParameter || tensor.kind == TensorKind::kState;
}

// Matches its scope or an enclosing one, a parameter it reads, or a tensor it makes.
bool names_node(const Graph& graph, const Node& node, std::string_view pattern) {
  if (node.phase != Phase::kForward) return false;
  for (std::string_view scope = node.scope; !scope.empty();
       scope = scope.substr(0, scope.rfind('.') == std::string_view::npos ? 0 : scope.rfind('.')))
    if (matches_wildcard(pattern, scope)) return true;
  for (const TensorId input : node.inputs)
    if (graph.tensor(input).kind == TensorKind::kParameter &&
        matches_wildcard(pattern, graph.tensor(input).name))
      return true;
  return std::ranges::any_of(node.outputs,
                             [&](TensorId id) { return matches_wildcard(pattern, graph.tensor(id).name); });
}

Status unknown(std::string_view what, std::string_view name, std::vector<std::string> known) {
  std::ranges::sort(known);
  known.erase(std::ranges::unique(known).begin(), known.end());
  return bad(format("{} '{}' is not in the graph{}", what, name, nearest_hint(name, known)));
}

std::vector<std::string> stored_names(const Graph& graph) {
  std::vector<std::string> names;
  for (const Tensor& tensor : graph.tensors())
    if (is_stored(tensor)) names.push_back(tensor.name);
  return names;
}

std::vector<std::string> op_names(const Graph& graph) {
  std::vector<std::string> names;
  for (const Node& node : graph.nodes())
    if (node.phase == Phase::kForward && !node.scope.empty()) names.push_back(node.scope);
  for (const TensorId id : graph.tensors_of_kind(TensorKind::kParameter))
    names.push_back(graph.tensor(id).name);
  return names;
}

// "n over tp, m over dp+tp" -> factor axes, sorted by factor.
Result<std::vector<std::pair<char, std::vector<AxisId>>>> parse_factors(const std::string& text,
                                                                        const ShardingRule& rule,
                                                                        const DeviceMesh& mesh) {
  std::vector<std::pair<char, std::vector<AxisId>>> all;
  if (trim(text) == "whole") return all;
  for (const std::string& part : split(text, ',')) {
    const std::string_view words = trim(part);
    const size_t over = words.find(" over ");
    if (over != 1)
      return bad(format("'{}' is no assignment; wanted a factor over axes, as in 'n over tp'", words));
    if (rule.find(words[0]) == nullptr)
      return bad(format("the operation '{}' has no factor '{}'", to_text(rule), words[0]));
    std::vector<AxisId> axes;
    for (const std::string& name : split(words.substr(over + 6), '+')) {
      const auto axis = mesh.find_axis(trim(name));
      if (!axis) return bad(format("the mesh '{}' has no axis '{}'", to_text(mesh), trim(name)));
      axes.push_back(*axis);
    }
    all.emplace_back(words[0], std::move(axes));
  }
  std::ranges::sort(all);
  return all;
}

Status pin_stored(const Graph& graph, const PlanPins& pins, Plan& plan) {
  const DeviceMesh& mesh = plan.stages[0].mesh;
  for (const auto& [pattern, text] : pins.stored) {
    TSR_ASSIGN_OR_RETURN(const ShardingSpec spec, parse_spec(text, mesh));
    for (StoredTensor& stored : plan.stored) {
      const Tensor& tensor = graph.tensor(stored.tensor);
      if (!is_stored(tensor) || !matches_wildcard(pattern, tensor.name)) continue;
      TSR_RETURN_IF_ERROR(
          validate(spec, tensor.type.shape, mesh).with_context(format("pins: '{}'", tensor.name)));
      for (Placement& placement : stored.placements) placement.stored = spec;
    }
  }
  if (!pins.stored.empty()) place_narrow_copies(graph, parameter_copies(graph), plan);
  return {};
}

Status pin_ops(const Graph& graph, const PlanPins& pins, Plan& plan) {
  for (const auto& [pattern, text] : pins.ops)
    for (size_t n = 0; n < plan.nodes.size(); ++n) {
      const NodeId id{static_cast<uint32_t>(n)};
      if (!names_node(graph, graph.node(id), pattern)) continue;
      TSR_ASSIGN_OR_RETURN(const ShardingRule rule, rule_of(graph, graph.node(id)));
      NodePlan pinned = plan.nodes[n];
      TSR_ASSIGN_OR_RETURN(pinned.factor_axes, parse_factors(text, rule, plan.stages[0].mesh));
      // Previous attributes of those factors do not apply.
      pinned.carried.clear();
      pinned.carry_set = -1;
      pinned.chunk_factor = 0;
      pinned.chunks = 1;
      pinned.chunk_order = ChunkOrder::kBroadcast;
      TSR_RETURN_IF_ERROR(shard_node(graph, id, pinned, plan.stages[0].mesh)
                              .status()
                              .with_context(format("pins: '{}'", pattern)));
      plan.nodes[n] = std::move(pinned);
    }
  return {};
}

}  // namespace

Status check_pins(const Graph& graph, const PlanPins& pins) {
  for (const auto& [pattern, text] : pins.stored)
    if (std::ranges::none_of(graph.tensors(), [&](const Tensor& it) {
          return is_stored(it) && matches_wildcard(pattern, it.name);
        }))
      return unknown("parameter or state", pattern, stored_names(graph));
  const auto check_node = [&](const std::string& pattern) -> Status {
    if (std::ranges::any_of(graph.nodes(), [&](const Node& it) { return names_node(graph, it, pattern); }))
      return {};
    return unknown("operation", pattern, op_names(graph));
  };
  for (const auto& [pattern, text] : pins.ops) TSR_RETURN_IF_ERROR(check_node(pattern));
  for (const std::string& pattern : pins.keep) TSR_RETURN_IF_ERROR(check_node(pattern));
  for (const std::string& pattern : pins.stages) TSR_RETURN_IF_ERROR(check_node(pattern));
  return {};
}

std::map<std::string, int32_t> pinned_owners(const Graph& graph, const PlanPins& pins) {
  std::map<std::string, int32_t> owners;
  for (size_t s = 0; s < pins.stages.size(); ++s)
    for (const Node& node : graph.nodes()) {
      if (!names_node(graph, node, pins.stages[s])) continue;
      for (const TensorId input : node.inputs)
        if (graph.tensor(input).kind == TensorKind::kParameter)
          owners.emplace(graph.tensor(input).name, static_cast<int32_t>(s) + 1);
    }
  return owners;
}

Status apply_pins(const Graph& graph, const PlanPins& pins, Plan& plan) {
  if (pins.empty()) return {};
  if (!pins.stages.empty() && pins.stages.size() + 1 != plan.stages.size())
    return bad(
        format("the pins have {} stages, this plan has {}", pins.stages.size() + 1, plan.stages.size()));
  TSR_RETURN_IF_ERROR(pin_stored(graph, pins, plan));
  TSR_RETURN_IF_ERROR(pin_ops(graph, pins, plan));
  std::erase_if(plan.recompute, [&](TensorId id) { return !may_recompute(graph, pins, id); });
  return {};
}

bool may_recompute(const Graph& graph, const PlanPins& pins, TensorId activation) {
  const Node& producer = graph.node(graph.tensor(activation).producer);
  return std::ranges::none_of(
      pins.keep, [&](const std::string& pattern) { return names_node(graph, producer, pattern); });
}

}  // namespace tessera
