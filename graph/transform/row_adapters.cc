#include "graph/transform/row_adapters.h"

#include <algorithm>
#include <string>
#include <utility>

#include "graph/transform/adapters.h"

namespace tessera {

namespace {

// Returns the parameter that a tensor is, directly or by a cast; kNoTensor for others.
TensorId parameter_of(const Graph& graph, TensorId id) {
  const NodeId producer = graph.tensor(id).producer;
  if (producer != kNoNode && graph.node(producer).op->is_cast) id = graph.node(producer).inputs[0];
  return graph.tensor(id).kind == TensorKind::kParameter ? id : kNoTensor;
}

bool is_block(const Tensor& tensor) { return tensor.name.starts_with("block."); }

}  // namespace

RowAdapters::RowAdapters(const Graph& forward, const RowAdapterOptions& options)
    : forward_(forward), options_(options), is_adapted_(forward.tensors().size()) {
  if (options.slots == 0) return;
  std::vector<bool> others(forward.tensors().size());  // read by other nodes
  for (const Node& node : forward.nodes())
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const TensorId parameter = parameter_of(forward, node.inputs[i]);
      if (parameter == kNoTensor || node.op->is_cast) continue;
      const Tensor& tensor = forward.tensor(parameter);
      const WeightOperand& weight = node.op->weight;
      const bool is_weight = weight.use == WeightUse::kProduct && weight.operand == static_cast<int>(i) &&
                             !is_adapter_name(tensor.name);
      (is_weight ? is_adapted_ : others)[index(parameter)] = true;
    }
  bool has_blocks = false;
  for (size_t i = 0; i < is_adapted_.size(); ++i) {
    is_adapted_[i] = is_adapted_[i] && !others[i];
    has_blocks |= is_adapted_[i] && is_block(forward.tensors()[i]);
  }
  for (size_t i = 0; has_blocks && i < is_adapted_.size(); ++i)
    is_adapted_[i] = is_adapted_[i] && is_block(forward.tensors()[i]);
}

TensorId RowAdapters::weight_of(const Node& node) const {
  const WeightOperand& weight = node.op->weight;
  if (weight.use != WeightUse::kProduct) return kNoTensor;
  return parameter_of(forward_, node.inputs[static_cast<size_t>(weight.operand)]);
}

bool RowAdapters::applies_to(const Node& node) const {
  const TensorId weight = weight_of(node);
  return weight != kNoTensor && is_adapted_[index(weight)];
}

// Returns the pair of a weight, one for all nodes that read it.
Result<RowAdapters::Factors> RowAdapters::factors_of(GraphCopy& copy, const Node& node) {
  const TensorId weight = weight_of(node);
  Factors& factors = factors_[weight];
  if (factors.a != kNoTensor) return factors;
  const Tensor& tensor = forward_.tensor(weight);
  const bool is_transposed = attr_i64(node.attrs, "trans_w") == 1;
  const int64_t K = tensor.type.shape[is_transposed ? 1 : 0], N = tensor.type.shape[is_transposed ? 0 : 1];
  const auto add = [&](std::string_view which, int64_t columns) {
    const TensorType type{options_.dtype, {options_.slots, options_.rank, columns}};
    return copy.graph().add_tensor(tensor.name + std::string(which), type, TensorKind::kState);
  };
  TSR_ASSIGN_OR_RETURN(factors.a, add(kAdapterA, K));
  TSR_ASSIGN_OR_RETURN(factors.b, add(kAdapterB, N));
  return factors;
}

Status RowAdapters::add_product(GraphCopy& copy, NodeId id, TensorId adapter) {
  const Node& node = forward_.node(id);
  Graph& graph = copy.graph();
  TSR_ASSIGN_OR_RETURN(const Factors factors, factors_of(copy, node));
  const std::string activation(attr_string_or(node.attrs, "activation", "none"));
  std::vector<Attr> attrs(node.attrs.begin(), node.attrs.end());
  for (Attr& attr : attrs)
    if (attr.name == "activation") attr.value = std::string("none");
  std::vector<TensorId> inputs;
  for (const TensorId input : node.inputs) inputs.push_back(copy.mapped(input));
  graph.set_scope(node.scope);
  TSR_ASSIGN_OR_RETURN(const std::vector<TensorId> base,
                       graph.add_node(node.op->name, inputs, std::move(attrs)));
  TSR_ASSIGN_OR_RETURN(const TensorId low, graph.add("adapter_shrink", {inputs[0], factors.a, adapter}));
  TSR_ASSIGN_OR_RETURN(const TensorId sum, graph.add("adapter_expand", {low, factors.b, adapter, base[0]}));
  std::vector<TensorId> results = {sum};
  if (activation != "none") {
    TSR_ASSIGN_OR_RETURN(const TensorId active, graph.add(activation, {sum}));
    results = {active, sum};
  }
  graph.set_scope("");
  for (size_t i = 0; i < node.outputs.size(); ++i)
    TSR_RETURN_IF_ERROR(copy.substitute(node.outputs[i], results[i]));
  return {};
}

}  // namespace tessera
