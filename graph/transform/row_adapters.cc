#include "graph/transform/row_adapters.h"

#include <algorithm>
#include <optional>
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

// The parameter that a node uses so; kNoTensor: none.
TensorId weight_of(const Graph& graph, const Node& node, WeightUse use = WeightUse::kProduct) {
  const WeightOperand& weight = node.op->weight;
  if (weight.use != use) return kNoTensor;
  return parameter_of(graph, node.inputs[static_cast<size_t>(weight.operand)]);
}

int64_t columns_of(const Graph& graph, TensorId tensor) {
  const Shape& shape = graph.type(tensor).shape;
  return shape.rank() == 0 ? 0 : shape[shape.rank() - 1];
}

// The last product with a parameter of as many columns as the logits have.
NodeId head_of(const Graph& graph) {
  const std::optional<TensorId> logits = graph.find_output("logits");
  for (size_t i = graph.nodes().size(); logits && i-- > 0;) {
    const Node& node = graph.nodes()[i];
    const TensorId weight = weight_of(graph, node);
    if (weight != kNoTensor && !is_block(graph.tensor(weight)) && !is_adapter_name(graph.tensor(weight).name) &&
        columns_of(graph, node.outputs[0]) == columns_of(graph, *logits))
      return NodeId{static_cast<uint32_t>(i)};
  }
  return kNoNode;
}

// The head's weight, as adapters name it: a table that is the head too becomes a parameter of its own.
std::string name_of_head(const Graph& graph, TensorId weight) {
  const bool is_table = std::ranges::any_of(
      graph.nodes(), [&](const Node& node) { return weight_of(graph, node, WeightUse::kRows) == weight; });
  return is_table ? "output" : graph.tensor(weight).name;
}

}  // namespace

std::string adapted_head(const Graph& forward) {
  const NodeId head = head_of(forward);
  return head == kNoNode ? std::string() : name_of_head(forward, weight_of(forward, forward.node(head)));
}

RowAdapters::RowAdapters(const Graph& forward, const RowAdapterOptions& options)
    : forward_(forward), options_(options), is_adapted_(forward.tensors().size()) {
  if (options.slots == 0) return;
  for (const TensorId weight : options.weights) is_adapted_[index(weight)] = true;
  if (!options.weights.empty()) return;
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
  if (options.head) head_ = head_of(forward);
}

bool RowAdapters::applies_to(const Node& node) const {
  const TensorId weight = weight_of(forward_, node);
  return is_adapted_table(node) || (weight != kNoTensor && (is_adapted_[index(weight)] || is_head(node)));
}

bool RowAdapters::is_adapted_table(const Node& node) const {
  if (options_.slots == 0 || !options_.tables) return false;
  const TensorId table = weight_of(forward_, node, WeightUse::kRows);
  return table != kNoTensor && !is_adapter_name(forward_.tensor(table).name);
}

bool RowAdapters::is_head(const Node& node) const {
  return head_ != kNoNode && &node == &forward_.node(head_);
}

// Returns the pair of a weight, one for all nodes that read it.
Result<RowAdapters::Factors> RowAdapters::factors_of(GraphCopy& copy, const Node& node) {
  const bool is_table = is_adapted_table(node);
  const TensorId weight = weight_of(forward_, node, is_table ? WeightUse::kRows : WeightUse::kProduct);
  Factors& factors = (is_table ? table_factors_ : factors_)[weight];
  if (factors.a != kNoTensor) return factors;
  const Tensor& tensor = forward_.tensor(weight);
  const bool is_transposed = !is_table && attr_i64(node.attrs, "trans_w") == 1;
  const int64_t K = tensor.type.shape[is_transposed ? 1 : 0], N = tensor.type.shape[is_transposed ? 0 : 1];
  const std::string name = is_head(node) ? name_of_head(forward_, weight) : tensor.name;
  const auto add = [&](std::string_view which, int64_t rows, int64_t columns) {
    const TensorType type{options_.dtype, {options_.slots, rows, columns}};
    return copy.graph().add_tensor(name + std::string(which), type, options_.kind);
  };
  const int64_t rank = options_.rank;
  TSR_ASSIGN_OR_RETURN(factors.a, is_table ? add(kAdapterTable, K, rank) : add(kAdapterA, rank, K));
  TSR_ASSIGN_OR_RETURN(factors.b, add(kAdapterB, rank, N));
  return factors;
}

// [..., rank] of each token: a product, after dropout, or rows of a table, which has none.
Result<TensorId> RowAdapters::first_product(GraphCopy& copy, const Node& node, TensorId a, const RowInputs& rows) const {
  Graph& graph = copy.graph();
  if (is_adapted_table(node)) {
    const auto ids = static_cast<size_t>(node.op->index.operand);
    return graph.add("adapter_rows", {copy.mapped(node.inputs[ids]), a, rows.adapter});
  }
  TensorId x = copy.mapped(node.inputs[0]);
  if (rows.rate != kNoTensor) {
    const int64_t salt = adapter_dropout_salt(first_matrix_name(forward_.tensor(weight_of(forward_, node)).name));
    TSR_ASSIGN_OR_RETURN(x, graph.add("row_dropout", {x, rows.seed, rows.row, rows.rate}, {{"salt", salt}}));
  }
  return graph.add("adapter_shrink", {x, a, rows.adapter});
}

Status RowAdapters::add_product(GraphCopy& copy, NodeId id, const RowInputs& rows) {
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
  TSR_ASSIGN_OR_RETURN(TensorId low, first_product(copy, node, factors.a, rows));
  if (rows.factor != kNoTensor) {
    const std::vector<int64_t> last = {graph.type(low).shape.rank() - 1};
    TSR_ASSIGN_OR_RETURN(const TensorId everywhere, graph.add("broadcast", {rows.factor, low}, {{"axes", last}}));
    TSR_ASSIGN_OR_RETURN(low, graph.add("mul", {low, everywhere}));
  }
  TSR_ASSIGN_OR_RETURN(const TensorId sum, graph.add("adapter_expand", {low, factors.b, rows.adapter, base[0]}));
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
