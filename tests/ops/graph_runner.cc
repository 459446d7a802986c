#include "tests/ops/graph_runner.h"

#include "graph/base/text.h"
#include "tests/ops/kernel_runner.h"

namespace tessera::test {

Result<std::vector<HostTensor>> run_graph(const Graph& graph,
                                          const std::map<std::string, HostTensor>& values) {
  std::vector<HostTensor> all(graph.tensors().size());
  for (size_t i = 0; i < all.size(); ++i) {
    const Tensor& tensor = graph.tensors()[i];
    if (tensor.kind == TensorKind::kActivation) continue;
    const auto given = values.find(tensor.name);
    if (given == values.end())
      return Status(StatusCode::kNotFound, format("no value for '{}' {}", tensor.name, tensor.type));
    if (given->second.type != tensor.type)
      return Status(StatusCode::kInvalidArgument, format("the value of '{}' is {}, wanted {}", tensor.name,
                                                         given->second.type, tensor.type));
    all[i] = given->second;
  }
  for (const Node& node : graph.nodes()) {
    KernelCall call{.op = node.op->name, .inputs = {}, .attrs = node.attrs};
    for (TensorId input : node.inputs) call.inputs.push_back(all[index(input)]);
    auto results = run_kernel(call);
    if (!results.ok()) return results.status().with_context(format("{} '{}'", node.op->name, node.scope));
    for (size_t i = 0; i < node.outputs.size(); ++i) all[index(node.outputs[i])] = std::move((*results)[i]);
  }
  return all;
}

}  // namespace tessera::test
