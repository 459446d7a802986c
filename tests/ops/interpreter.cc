#include "tests/ops/interpreter.h"

#include "graph/base/text.h"

namespace tessera::conformance {

Result<Interpreter> Interpreter::make(const Graph& graph) {
  Interpreter result;
  result.graph_ = &graph;
  for (const Node& node : graph.nodes()) {
    std::vector<TensorType> inputs;
    for (TensorId id : node.inputs) inputs.push_back(graph.type(id));
    TSR_ASSIGN_OR_RETURN(const OpInstance instance, make_instance(*node.op, node.attrs, std::move(inputs)));
    const std::vector<cpu::KernelEntry> kernels = kernels_of(node.op->name);
    const cpu::KernelEntry* reference = reference_of(kernels);
    if (reference == nullptr)
      return Status(StatusCode::kNotFound, format("op {} has no reference kernel", node.op->name));
    Result<PreparedKernel> kernel = PreparedKernel::prepare(*reference, instance);
    if (!kernel.ok()) return kernel.status().with_context(node.op->name);
    result.kernels_.push_back(std::move(kernel).value());
  }
  return result;
}

Result<std::vector<Array>> Interpreter::run(const std::map<TensorId, Array>& feeds) const {
  std::vector<Array> values(graph_->tensors().size());
  for (const auto& [id, array] : feeds) values[index(id)] = array;
  for (size_t n = 0; n < kernels_.size(); ++n) {
    const Node& node = graph_->nodes()[n];
    std::vector<Array> inputs;
    for (TensorId id : node.inputs) inputs.push_back(values[index(id)]);
    Result<std::vector<Array>> results = kernels_[n].run(inputs);
    if (!results.ok()) return results.status().with_context(node.op->name);
    for (size_t o = 0; o < node.outputs.size(); ++o)
      values[index(node.outputs[o])] = std::move((*results)[o]);
  }
  return values;
}

}  // namespace tessera::conformance
