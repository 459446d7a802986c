#include <vector>

#include "graph/transform/fusion.h"
#include "graph/transform/graph_copy.h"

namespace tessera {

namespace {

class Products {
 public:
  explicit Products(const Graph& step) : step_(step), readers_(step.tensors().size(), 0) {
    const auto read = [&](TensorId id) { ++readers_[index(id)]; };
    for (const Node& node : step.nodes())
      for (const TensorId input : node.inputs) read(input);
    for (const NamedTensor& output : step.outputs()) read(output.tensor);
    for (const Update& update : step.updates()) read(update.value);
    for (const Gradient& gradient : step.gradients()) read(gradient.gradient);
  }

  // Returns the product that `node` can be fused with; kNoNode for none.
  NodeId of(const Node& node) const {
    if (node.op->fused.with_product.empty() || !has_default_attrs(*node.op, node.attrs)) return kNoNode;
    const TensorId dy = node.inputs[1];
    const NodeId producer = step_.tensor(dy).producer;
    if (producer == kNoNode || readers_[index(dy)] != 1) return kNoNode;
    const Node& product = step_.node(producer);
    const bool is_plain = product.op->weight.use == WeightUse::kProduct && product.inputs.size() == 2 &&
                          attr_string(product.attrs, "activation") == "none" &&
                          attr_i64(product.attrs, "allow_tf32") == 0 && product.phase == node.phase;
    return is_plain ? producer : kNoNode;
  }

 private:
  const Graph& step_;
  std::vector<int> readers_;
};

}  // namespace

Result<Graph> with_fused_gelu_gradients(const Graph& step) {
  const Products products(step);
  std::vector<bool> leaves(step.nodes().size(), false);
  for (const Node& node : step.nodes())
    if (const NodeId product = products.of(node); product != kNoNode) leaves[index(product)] = true;
  GraphCopy copy(step);
  Graph& graph = copy.graph();
  // Tensors follow their operands.
  for (size_t t = 0; t < step.tensors().size(); ++t) {
    const TensorId id{static_cast<uint32_t>(t)};
    const Tensor& tensor = step.tensor(id);
    if (tensor.producer == kNoNode) {
      TSR_RETURN_IF_ERROR(copy.copy_tensor(id));
      continue;
    }
    if (tensor.output_index != 0 || leaves[index(tensor.producer)]) continue;
    const Node& node = step.node(tensor.producer);
    const NodeId replaced = products.of(node);
    if (replaced == kNoNode) {
      TSR_RETURN_IF_ERROR(copy.copy_node(tensor.producer));
      continue;
    }
    const Node& product = step.node(replaced);
    // It takes the matmul's scope, since nearly all of its work is the matmul's.
    graph.set_scope(product.scope);
    graph.set_phase(product.phase, product.forward == kNoNode ? kNoNode : copy.mapped_node(product.forward));
    TSR_ASSIGN_OR_RETURN(const TensorId dpre,
                         graph.add(node.op->fused.with_product,
                                   {copy.mapped(product.inputs[0]), copy.mapped(product.inputs[1]),
                                    copy.mapped(node.inputs[0])},
                                   {{"trans_w", attr_i64(product.attrs, "trans_w")}}));
    graph.set_scope("");
    graph.set_phase(Phase::kForward);
    const NodeId made{static_cast<uint32_t>(graph.nodes().size() - 1)};
    copy.replace_node(replaced, made);
    copy.replace_node(tensor.producer, made);
    TSR_RETURN_IF_ERROR(copy.substitute(id, dpre));
  }
  TSR_RETURN_IF_ERROR(copy.copy_results());
  return std::move(graph);
}

}  // namespace tessera
