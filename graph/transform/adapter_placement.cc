#include <algorithm>
#include <cmath>

#include "graph/base/text.h"
#include "graph/transform/adapters.h"

namespace tessera {

namespace {

Status refuse_placement(std::string message) {
  return Status(StatusCode::kInvalidArgument, "adapters: " + std::move(message));
}

// Readers: the kinds of nodes that read each parameter.
struct Readers {
  std::vector<bool> product, look_up, other;  // by tensor

  explicit Readers(const Graph& graph)
      : product(graph.tensors().size()), look_up(graph.tensors().size()), other(graph.tensors().size()) {
    for (const Node& node : graph.nodes())
      for (size_t i = 0; i < node.inputs.size(); ++i) {
        const WeightOperand& weight = node.op->weight;
        const WeightUse use = weight.operand == static_cast<int>(i) ? weight.use : WeightUse::kOther;
        std::vector<bool>& readers = use == WeightUse::kProduct ? product
                                     : use == WeightUse::kRows  ? look_up
                                                                : other;
        readers[index(node.inputs[i])] = true;
      }
  }
  bool is_weight(TensorId id) const { return product[index(id)] && !look_up[index(id)] && !other[index(id)]; }
  bool is_table(TensorId id) const { return look_up[index(id)] && !product[index(id)] && !other[index(id)]; }
};

Status check_placement(const Graph& forward, const Readers& readers, const AdapterPlacement& placement) {
  const Tensor& tensor = forward.tensor(placement.weight);
  if (!std::isfinite(placement.factor))
    return refuse_placement(
        format("what '{}' is given counts {} times, wanted a finite number", tensor.name, placement.factor));
  if (placement.rank < 1) return refuse_placement(format("the rank is {}, wanted 1 or more", placement.rank));
  const bool is_matrix = tensor.kind == TensorKind::kParameter && tensor.type.shape.rank() == 2;
  if (!is_matrix || is_adapter_name(tensor.name) ||
      (!readers.is_weight(placement.weight) && !readers.is_table(placement.weight)))
    return refuse_placement(
        format("'{}' is not a matrix that products alone or look-ups alone read", tensor.name));
  if (placement.has_bias && readers.is_table(placement.weight))
    return refuse_placement(format("'{}' is a table, whose adapter has no bias", tensor.name));
  if (placement.has_magnitude && (readers.is_table(placement.weight) || placement.has_bias))
    return Status(StatusCode::kUnsupported,
                  format("adapters: magnitudes (DoRA) of '{}', {}, are not supported", tensor.name,
                         placement.has_bias ? "whose adapter has a bias" : "a table"));
  if (!(placement.dropout >= 0 && placement.dropout < 1))
    return refuse_placement(format("dropout is {}, wanted 0 <= dropout < 1", placement.dropout));
  const std::string_view other = readers.is_table(placement.weight) ? "a table"
                                 : placement.has_bias               ? "whose adapter has a bias"
                                 : placement.has_magnitude          ? "whose adapter has magnitudes (DoRA)"
                                                                    : "";
  if (placement.has_start && !other.empty())
    return Status(StatusCode::kUnsupported,
                  format("adapters: principal values (PiSSA) to begin '{}' with, {}, are not supported",
                         tensor.name, other));
  if (placement.dropout > 0 && placement.has_magnitude)
    return Status(
        StatusCode::kUnsupported,
        format("adapters: dropout with magnitudes (DoRA), as of '{}', is not supported: leave out one",
               tensor.name));
  return {};
}

}  // namespace

std::vector<TensorId> adaptable_weights(const Graph& forward) {
  const Readers readers(forward);
  std::vector<TensorId> all, of_blocks;
  for (const TensorId id : forward.tensors_of_kind(TensorKind::kParameter)) {
    const Tensor& tensor = forward.tensor(id);
    if (!readers.is_weight(id) || is_adapter_name(tensor.name)) continue;
    all.push_back(id);
    if (tensor.name.starts_with("block.")) of_blocks.push_back(id);
  }
  return of_blocks.empty() ? all : of_blocks;
}

Status check_new_adapter(const Graph& forward, const AdapterPlacement& placement) {
  TSR_RETURN_IF_ERROR(check_placement(forward, Readers(forward), placement));
  const Tensor& tensor = forward.tensor(placement.weight);
  const int64_t most = std::min(tensor.type.shape[0], tensor.type.shape[1]);
  if (placement.rank <= most) return {};
  return refuse_placement(format("the rank is {}, '{}' {} has no more than {}", placement.rank, tensor.name,
                                 to_text(tensor.type), most));
}

Status check_adapter_placements(const Graph& forward, std::span<const AdapterPlacement> placements) {
  const Readers readers(forward);
  for (const AdapterPlacement& placement : placements)
    TSR_RETURN_IF_ERROR(check_placement(forward, readers, placement));
  return {};
}

}  // namespace tessera
