// The same forward graph as somebody else might have written it down: its nodes in a random topological
// order, inputs and parameters anywhere before their readers and in another order, other names.
#pragma once

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "graph/base/text.h"
#include "graph/graph.h"

namespace tessera::test {

// `renames`: parameters and scopes get other names, too; inputs and outputs are what the outside knows.
inline Result<Graph> reordered(const Graph& graph, std::mt19937& random, bool renames) {
  Graph other;
  for (const Symbol& symbol : graph.symbols()) other.symbol(symbol.name, symbol.capacity);
  std::vector<TensorId> now(graph.tensors().size(), kNoTensor);
  std::vector<size_t> sources, nodes;  // that are left
  for (size_t t = 0; t < graph.tensors().size(); ++t)
    if (graph.tensors()[t].producer == kNoNode) sources.push_back(t);
  for (size_t n = 0; n < graph.nodes().size(); ++n) nodes.push_back(n);
  while (!sources.empty() || !nodes.empty()) {
    std::vector<size_t> ready;
    for (size_t i = 0; i < nodes.size(); ++i)
      if (std::ranges::all_of(graph.nodes()[nodes[i]].inputs,
                              [&](TensorId id) { return now[index(id)] != kNoTensor; }))
        ready.push_back(i);
    const size_t chosen = random() % (sources.size() + ready.size());
    if (chosen < sources.size()) {
      const Tensor& tensor = graph.tensors()[sources[chosen]];
      const bool known = tensor.kind == TensorKind::kInput || !renames;
      TSR_ASSIGN_OR_RETURN(
          now[sources[chosen]],
          other.add_tensor(known ? tensor.name : format("other{}.{}", random() % 7, tensor.name), tensor.type,
                           tensor.kind));
      if (!tensor.trainable) other.set_trainable(now[sources[chosen]], false);
      sources.erase(sources.begin() + static_cast<std::ptrdiff_t>(chosen));
      continue;
    }
    const size_t at = ready[chosen - sources.size()];
    const Node& node = graph.nodes()[nodes[at]];
    std::vector<TensorId> inputs;
    for (const TensorId id : node.inputs) inputs.push_back(now[index(id)]);
    other.set_scope(renames && node.scope.starts_with("block.")
                        ? format("decoder.layers{}", node.scope.substr(5))
                        : node.scope);
    TSR_ASSIGN_OR_RETURN(const auto outputs, other.add_node(node.op->name, inputs, node.attrs));
    for (size_t o = 0; o < outputs.size(); ++o) now[index(node.outputs[o])] = outputs[o];
    nodes.erase(nodes.begin() + static_cast<std::ptrdiff_t>(at));
  }
  other.set_scope("");
  for (const NamedTensor& output : graph.outputs())
    TSR_RETURN_IF_ERROR(other.add_output(output.name, now[index(output.tensor)]));
  for (const Update& update : graph.updates())
    other.add_update(now[index(update.target)], now[index(update.value)]);
  return other;
}

}  // namespace tessera::test
