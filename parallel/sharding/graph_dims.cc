#include "parallel/sharding/graph_dims.h"

#include <algorithm>

namespace tessera {

namespace {

bool is_integer(DType dtype) { return dtype == DType::kI32 || dtype == DType::kI64; }

std::vector<int> find_batch(const Graph& symbolic) {
  std::vector<int> batch;
  std::optional<int64_t> extent;
  for (size_t s = 0; s < symbolic.symbols().size(); ++s)
    if (symbolic.symbols()[s].name == "B") extent = symbol_extent(static_cast<int32_t>(s));
  for (const Tensor& tensor : symbolic.tensors()) {
    const auto shape = tensor.type.shape.dims();
    const auto at = extent ? std::ranges::find(shape, *extent) : shape.end();
    batch.push_back(at == shape.end() ? -1 : static_cast<int>(at - shape.begin()));
  }
  return batch;
}

// By tensor: an input's sequence dim, after its batch; or -1.
std::vector<int> find_input_sequences(const Graph& bound, std::span<const int> batch) {
  std::vector<int> sequence;
  for (size_t t = 0; t < bound.tensors().size(); ++t) {
    const Tensor& tensor = bound.tensors()[t];
    const int after = batch[t] + 1, least = is_integer(tensor.type.dtype) ? 2 : 3;
    const bool has = tensor.kind == TensorKind::kInput && after == 1 && tensor.type.shape.rank() >= least;
    sequence.push_back(has ? after : -1);
  }
  return sequence;
}

}  // namespace

GraphDims find_dims(const Graph& symbolic, const Graph& bound, const Units& units) {
  GraphDims dims;
  dims.batch = find_batch(symbolic);
  dims.sequence = find_input_sequences(bound, dims.batch);
  for (size_t n = 0; n < bound.nodes().size(); ++n) {
    const Node& node = bound.nodes()[n];
    const ShardingRule& rule = units.rules[n];
    std::string factors, ordered;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const int dim = dims.sequence[index(node.inputs[i])];
      if (dim < 0) continue;
      const char name = major_factor(rule, rule.inputs[i][static_cast<size_t>(dim)]).name;
      if (name != 0 && factors.find(name) == std::string::npos) factors += name;
    }
    // Real inputs [B, T], such as token weights, are sequences if they meet one.
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const size_t t = index(node.inputs[i]);
      if (bound.tensors()[t].kind != TensorKind::kInput || dims.batch[t] != 0 || dims.sequence[t] >= 0)
        continue;
      for (size_t d = 1; d < rule.inputs[i].size(); ++d)
        if (const char name = major_factor(rule, rule.inputs[i][d]).name;
            name != 0 && factors.find(name) != std::string::npos && dims.sequence[t] < 0)
          dims.sequence[t] = static_cast<int>(d);
    }
    for (size_t o = 0; o < node.outputs.size(); ++o)
      for (size_t d = 0; d < rule.outputs[o].size(); ++d) {
        const char name = major_factor(rule, rule.outputs[o][d]).name;
        int& dim = dims.sequence[index(node.outputs[o])];
        if (name == 0 || factors.find(name) == std::string::npos || dim >= 0) continue;
        dim = static_cast<int>(d);
        if (ordered.find(name) == std::string::npos) ordered += name;
      }
    for (const char name : factors)
      if (ordered.find(name) == std::string::npos) ordered += name;
    dims.sequence_factors.push_back(std::move(ordered));
  }
  return dims;
}

SequenceDims find_sequence_dims(const Graph& symbolic, const Graph& bound,
                                std::span<const ShardingRule> rules) {
  SequenceDims found;
  const std::vector<int> sequences = find_input_sequences(bound, find_batch(symbolic));
  for (size_t t = 0; t < bound.tensors().size(); ++t) {
    std::vector<bool>& dims =
        found.dims.emplace_back(static_cast<size_t>(bound.tensors()[t].type.shape.rank()));
    if (sequences[t] >= 0) dims[static_cast<size_t>(sequences[t])] = true;
  }
  for (const ShardingRule& rule : rules) found.factors.emplace_back(rule.factors.size());
  bool changed = true;
  const auto pass = [&](size_t n, TensorId tensor, const ShardingRule::OperandDims& dims) {
    for (size_t d = 0; d < dims.size(); ++d) {
      const char name = major_factor(rules[n], dims[d]).name;
      if (name == 0) continue;
      auto of_factor = found.factors[n][static_cast<size_t>(rules[n].find(name) - rules[n].factors.data())];
      auto of_dim = found.dims[index(tensor)][d];
      if (of_factor == of_dim) continue;
      of_factor = of_dim = changed = true;
    }
  };
  while (changed) {
    changed = false;
    for (size_t n = 0; n < bound.nodes().size(); ++n) {
      const Node& node = bound.nodes()[n];
      for (size_t i = 0; i < node.inputs.size(); ++i) pass(n, node.inputs[i], rules[n].inputs[i]);
      for (size_t o = 0; o < node.outputs.size(); ++o) pass(n, node.outputs[o], rules[n].outputs[o]);
    }
  }
  return found;
}

}  // namespace tessera
