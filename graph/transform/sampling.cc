#include "graph/transform/sampling.h"

#include <optional>

namespace tessera {

Result<Graph> with_sampling(const Graph& serving) {
  Graph graph = serving;
  const std::optional<TensorId> logits = graph.find_output("logits");
  if (!logits || graph.type(*logits).shape.rank() != 2)
    return Status(StatusCode::kInvalidArgument, "sampling needs the output 'logits' [W, V]");
  const auto add = [&](const char* name, DType dtype, Shape shape) {
    return graph.add_tensor(name, {dtype, shape}, TensorKind::kInput);
  };
  const DType real = graph.type(*logits).dtype == DType::kF64 ? DType::kF64 : DType::kF32;
  const Shape per_row{graph.type(*logits).shape[0]};
  TSR_ASSIGN_OR_RETURN(const TensorId temperature, add("temperature", real, {}));
  TSR_ASSIGN_OR_RETURN(const TensorId top_k, add("top_k", DType::kI32, {}));
  TSR_ASSIGN_OR_RETURN(const TensorId top_p, add("top_p", real, {}));
  TSR_ASSIGN_OR_RETURN(const TensorId seed, add("seed", DType::kI64, {}));
  TSR_ASSIGN_OR_RETURN(const TensorId start, add("start", DType::kI32, per_row));
  TSR_ASSIGN_OR_RETURN(const TensorId length, add("length", DType::kI32, per_row));
  graph.set_scope("output");
  TSR_ASSIGN_OR_RETURN(const TensorId token,
                       graph.add("sample", {*logits, temperature, top_k, top_p, seed, start, length}));
  graph.set_scope("");
  TSR_RETURN_IF_ERROR(graph.add_output("token", token));
  return graph;
}

}  // namespace tessera
