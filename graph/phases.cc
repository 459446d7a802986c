#include "graph/phases.h"

#include <algorithm>

#include "graph/base/text.h"
#include "graph/transform/graph_copy.h"

namespace tessera {

namespace {

ShardingRule rule_of(const Graph& graph, const Node& node) {
  std::vector<TensorType> inputs, outputs;
  for (const TensorId id : node.inputs) inputs.push_back(graph.type(id));
  for (const TensorId id : node.outputs) outputs.push_back(graph.type(id));
  return node.op->sharding({node.attrs, inputs, outputs, {}});
}

bool splits(const NodePlan& plan, char factor, const DeviceMesh& mesh) {
  for (const auto& [name, axes] : plan.factor_axes)
    if (name == factor)
      for (const AxisId axis : axes)
        if (axis < mesh.axes.size() && mesh.axis_size(axis) > 1) return true;
  return false;
}

class PhaseExpander {
 public:
  PhaseExpander(const Graph& graph, const Plan& plan) : plan_(plan), copy_(graph) {}

  bool needed() const {
    if (plan_.nodes.size() != copy_.source().nodes().size()) return false;
    for (size_t n = 0; n < plan_.nodes.size(); ++n)
      if (needs(n)) return true;
    return false;
  }

  Result<ExpandedPhases> run() {
    const Graph& source = copy_.source();
    for (size_t t = 0; t < source.tensors().size(); ++t)
      if (source.tensors()[t].kind != TensorKind::kActivation)
        TSR_RETURN_IF_ERROR(copy_.copy_tensor(TensorId{static_cast<uint32_t>(t)}));
    for (size_t n = 0; n < source.nodes().size(); ++n) {
      if (needs(n)) {
        TSR_RETURN_IF_ERROR(expand(n).with_context(source.nodes()[n].op->name));
      } else {
        TSR_RETURN_IF_ERROR(copy_.copy_node(NodeId{static_cast<uint32_t>(n)}));
        nodes_.push_back(plan_.nodes[n]);
      }
    }
    TSR_RETURN_IF_ERROR(copy_.copy_results());
    Plan plan = mapped_plan();
    return ExpandedPhases{std::move(copy_.graph()), std::move(plan)};
  }

 private:
  bool needs(size_t n) const {
    const Node& node = copy_.source().nodes()[n];
    const NodePlan& plan = plan_.nodes[n];
    if (node.op->phases == nullptr || plan.stage < 0 ||
        static_cast<size_t>(plan.stage) >= plan_.stages.size() || plan.factor_axes.empty())
      return false;
    const ShardingRule rule = rule_of(copy_.source(), node);
    return std::ranges::any_of(rule.factors, [&](const Factor& factor) {
      return factor.kind == FactorKind::kPhased &&
             splits(plan, factor.name, plan_.stages[static_cast<size_t>(plan.stage)].mesh);
    });
  }

  Status expand(size_t n) {
    const NodeId id{static_cast<uint32_t>(n)};
    const Node& node = copy_.source().node(id);
    if (!plan_.nodes[n].carried.empty() || plan_.nodes[n].chunks > 1)
      return Status(StatusCode::kUnsupported,
                    "a node whose channel is split takes no sums that wait and no chunks");
    Graph& graph = copy_.graph();
    std::vector<TensorId> inputs;
    for (const TensorId input : node.inputs) inputs.push_back(copy_.mapped(input));
    const size_t first = graph.nodes().size();
    graph.set_scope(node.scope);
    graph.set_phase(node.phase, node.forward == kNoNode ? kNoNode : copy_.mapped_node(node.forward));
    PhaseBuilder builder(graph, node, std::move(inputs));
    TSR_RETURN_IF_ERROR(node.op->phases(builder));
    graph.set_scope("");
    graph.set_phase(Phase::kForward);
    if (builder.outputs().size() != node.outputs.size())
      return Status(StatusCode::kInternal, format("its phases make {} results, it has {}",
                                                  builder.outputs().size(), node.outputs.size()));
    for (size_t o = 0; o < node.outputs.size(); ++o) {
      copy_.replace(node.outputs[o], builder.outputs()[o]);
      const std::string& name = copy_.source().tensor(node.outputs[o]).name;
      if (!name.starts_with('%')) TSR_RETURN_IF_ERROR(graph.rename(builder.outputs()[o], name));
    }
    copy_.replace_node(id, NodeId{static_cast<uint32_t>(graph.nodes().size() - 1)});
    for (size_t made = first; made < graph.nodes().size(); ++made)
      nodes_.push_back(plan_for(graph.nodes()[made], plan_.nodes[n]));
    return {};
  }

  // Returns the splits of the factors that the emitted op has.
  NodePlan plan_for(const Node& node, const NodePlan& whole) {
    NodePlan plan;
    plan.stage = whole.stage;
    plan.tier = whole.tier;
    const ShardingRule rule = rule_of(copy_.graph(), node);
    for (const auto& entry : whole.factor_axes)
      if (rule.find(entry.first) != nullptr) plan.factor_axes.push_back(entry);
    for (const auto& entry : whole.factor_units)
      if (rule.find(entry.first) != nullptr) plan.factor_units.push_back(entry);
    for (const auto& entry : whole.factor_firsts)
      if (rule.find(entry.first) != nullptr) plan.factor_firsts.push_back(entry);
    return plan;
  }

  Plan mapped_plan() const {
    Plan plan = plan_;
    plan.nodes = nodes_;
    plan.graph_fingerprint = 0;
    for (StoredTensor& stored : plan.stored) stored.tensor = copy_.mapped(stored.tensor);
    for (auto* list : {&plan.recompute, &plan.keep_gathered}) {
      for (TensorId& tensor : *list) tensor = copy_.mapped(tensor);
      std::ranges::sort(*list);
    }
    for (OffloadedTensor& offloaded : plan.offload) offloaded.tensor = copy_.mapped(offloaded.tensor);
    std::ranges::sort(plan.stored, {}, &StoredTensor::tensor);
    std::ranges::sort(plan.offload, {}, &OffloadedTensor::tensor);
    return plan;
  }

  const Plan& plan_;
  GraphCopy copy_;
  std::vector<NodePlan> nodes_;
};

}  // namespace

Result<std::vector<TensorId>> PhaseBuilder::emit_all(std::string_view op,
                                                     std::initializer_list<TensorId> inputs,
                                                     std::vector<Attr> attrs) {
  return graph_.add_node(op, std::span(inputs.begin(), inputs.size()), std::move(attrs));
}

Result<TensorId> PhaseBuilder::emit(std::string_view op, std::initializer_list<TensorId> inputs,
                                    std::vector<Attr> attrs) {
  return graph_.add(op, inputs, std::move(attrs));
}

Result<std::optional<ExpandedPhases>> expand_phases(const Graph& graph, const Plan& plan) {
  PhaseExpander expander(graph, plan);
  if (!expander.needed()) return std::optional<ExpandedPhases>();
  TSR_ASSIGN_OR_RETURN(ExpandedPhases expanded, expander.run());
  return std::optional<ExpandedPhases>(std::move(expanded));
}

}  // namespace tessera
