#include "graph/transform/wanted_rows.h"

#include <algorithm>
#include <string>

namespace tessera {

namespace {

// Returns whether every row of [B, T, ...] depends only on its own row of operand 0 and
// on operands without rows, by the op's rule, so that it also holds for future ops.
bool is_row_wise(const Graph& graph, const Node& node) {
  std::vector<TensorType> inputs, outputs;
  for (TensorId input : node.inputs) inputs.push_back(graph.type(input));
  for (TensorId output : node.outputs) outputs.push_back(graph.type(output));
  if (inputs.empty() || inputs[0].shape.rank() != 3) return false;
  const ShardingRule rule = node.op->sharding({node.attrs, inputs, outputs, {}});
  if (rule.inputs[0].size() != 3 || rule.inputs[0][0].size() != 1 || rule.inputs[0][1].size() != 1)
    return false;
  const std::string &b = rule.inputs[0][0], &t = rule.inputs[0][1];
  if (rule.find(t[0])->kind != FactorKind::kPass || rule.inputs[0][2].find(t[0]) != std::string::npos)
    return false;
  for (size_t i = 1; i < rule.inputs.size(); ++i)
    for (const std::string& dim : rule.inputs[i])
      if (dim.find(t[0]) != std::string::npos || dim.find(b[0]) != std::string::npos) return false;
  return std::ranges::all_of(rule.outputs, [&](const ShardingRule::OperandDims& dims) {
    return dims.size() >= 2 && dims[0] == b && dims[1] == t &&
           std::none_of(dims.begin() + 2, dims.end(),
                        [&](const std::string& dim) { return dim.find(t[0]) != std::string::npos; });
  });
}

}  // namespace

std::vector<uint32_t> operand_uses(const Graph& graph) {
  std::vector<uint32_t> uses(graph.tensors().size(), 0);
  for (const Node& node : graph.nodes())
    for (const TensorId input : node.inputs) ++uses[index(input)];
  return uses;
}

TensorId earliest_wanted(const Graph& graph, TensorId logits, const std::vector<uint32_t>& uses) {
  TensorId found = logits;
  for (;;) {
    const NodeId producer = graph.tensor(found).producer;
    if (producer == kNoNode) return found;
    const Node& node = graph.node(producer);
    const bool read_once = std::ranges::all_of(node.outputs, [&](TensorId output) {
      return uses[index(output)] == (output == found && found != logits ? 1u : 0u);
    });
    if (!read_once || !is_row_wise(graph, node)) return found;
    found = node.inputs[0];
  }
}

}  // namespace tessera
