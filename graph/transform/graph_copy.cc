#include "graph/transform/graph_copy.h"

#include <utility>

#include "graph/base/text.h"

namespace tessera {

GraphCopy::GraphCopy(const Graph& source)
    : source_(source), tensors_(source.tensors().size(), kNoTensor), nodes_(source.nodes().size(), kNoNode) {
  // Symbols keep their order, so that symbol extents keep their meaning.
  for (const Symbol& symbol : source.symbols()) graph_.symbol(symbol.name, symbol.capacity);
}

Status GraphCopy::copy_tensor(TensorId old) {
  const Tensor& tensor = source_.tensor(old);
  TSR_ASSIGN_OR_RETURN(const TensorId now, graph_.add_tensor(tensor.name, tensor.type, tensor.kind));
  if (!tensor.trainable) graph_.set_trainable(now, false);
  replace(old, now);
  return {};
}

Status GraphCopy::copy_node(NodeId old, std::vector<Attr> attrs) {
  const Node& node = source_.node(old);
  std::vector<TensorId> inputs;
  for (TensorId input : node.inputs) {
    TSR_CHECK(mapped(input) != kNoTensor, "an operand was not copied before its reader");
    inputs.push_back(mapped(input));
  }
  graph_.set_scope(node.scope);
  graph_.set_phase(node.phase, node.forward == kNoNode ? kNoNode : nodes_[index(node.forward)]);
  TSR_ASSIGN_OR_RETURN(const std::vector<TensorId> outputs,
                       graph_.add_node(node.op->name, inputs, std::move(attrs)));
  graph_.set_scope("");
  graph_.set_phase(Phase::kForward);
  nodes_[index(old)] = NodeId{static_cast<uint32_t>(graph_.nodes().size() - 1)};
  for (size_t i = 0; i < outputs.size(); ++i) TSR_RETURN_IF_ERROR(substitute(node.outputs[i], outputs[i]));
  return {};
}

Status GraphCopy::substitute(TensorId old, TensorId now) {
  replace(old, now);
  const std::string& name = source_.tensor(old).name;
  return name.starts_with('%') ? Status() : graph_.rename(now, name);
}

Status GraphCopy::copy_range(TensorId begin, TensorId end) {
  for (size_t t = index(begin); t < index(end); ++t) {
    const TensorId id{static_cast<uint32_t>(t)};
    const Tensor& tensor = source_.tensor(id);
    if (tensor.producer == kNoNode) {
      if (mapped(id) == kNoTensor) TSR_RETURN_IF_ERROR(copy_tensor(id));
    } else if (tensor.output_index == 0) {
      TSR_RETURN_IF_ERROR(copy_node(tensor.producer));
    }
  }
  return {};
}

Status GraphCopy::copy_after(TensorId last) {
  TSR_RETURN_IF_ERROR(copy_range(TensorId{static_cast<uint32_t>(index(last) + 1)},
                                 TensorId{static_cast<uint32_t>(source_.tensors().size())}));
  return copy_results();
}

Status GraphCopy::copy_results() {
  for (const NamedTensor& output : source_.outputs())
    if (mapped(output.tensor) != kNoTensor)
      TSR_RETURN_IF_ERROR(graph_.add_output(output.name, mapped(output.tensor)));
  for (const Update& update : source_.updates())
    if (mapped(update.target) != kNoTensor && mapped(update.value) != kNoTensor)
      graph_.add_update(mapped(update.target), mapped(update.value));
  for (const Gradient& gradient : source_.gradients())
    if (mapped(gradient.parameter) != kNoTensor && mapped(gradient.gradient) != kNoTensor)
      graph_.add_gradient(mapped(gradient.parameter), mapped(gradient.gradient));
  return {};
}

}  // namespace tessera
