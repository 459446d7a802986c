#include "parallel/sharding/graph_dims.h"

#include <algorithm>

namespace tessera {

namespace {

bool is_integer(DType dtype) { return dtype == DType::kI32 || dtype == DType::kI64; }

void find_batch(const Graph& symbolic, GraphDims& dims) {
  std::optional<int64_t> extent;
  for (size_t s = 0; s < symbolic.symbols().size(); ++s)
    if (symbolic.symbols()[s].name == "B") extent = symbol_extent(static_cast<int32_t>(s));
  for (const Tensor& tensor : symbolic.tensors()) {
    const auto shape = tensor.type.shape.dims();
    const auto at = extent ? std::ranges::find(shape, *extent) : shape.end();
    dims.batch.push_back(at == shape.end() ? -1 : static_cast<int>(at - shape.begin()));
  }
}

}  // namespace

GraphDims find_dims(const Graph& symbolic, const Graph& bound, const Units& units) {
  GraphDims dims;
  find_batch(symbolic, dims);
  for (size_t t = 0; t < bound.tensors().size(); ++t) {
    const Tensor& tensor = bound.tensors()[t];
    const int after = dims.batch[t] + 1, least = is_integer(tensor.type.dtype) ? 2 : 3;
    const bool has = tensor.kind == TensorKind::kInput && after == 1 && tensor.type.shape.rank() >= least;
    dims.sequence.push_back(has ? after : -1);
  }
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

}  // namespace tessera
