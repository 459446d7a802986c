// A graph in another element type, for tests that compare plans far below the rounding of training.
#pragma once

#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "graph/base/text.h"
#include "graph/graph.h"
#include "graph/transform/graph_copy.h"

namespace tessera {

inline Status copy_source(GraphCopy& copy, TensorId id, DType dtype) {
  Tensor tensor = copy.source().tensor(id);
  if (tensor.type.dtype == DType::kF32) tensor.type.dtype = dtype;
  TSR_ASSIGN_OR_RETURN(const TensorId now, copy.graph().add_tensor(tensor.name, tensor.type, tensor.kind));
  if (!tensor.trainable) copy.graph().set_trainable(now, false);
  copy.replace(id, now);
  return {};
}

// Copies a node whose attribute "dtype" names the element type of a result.
inline Status copy_typed_node(GraphCopy& copy, NodeId id, DType dtype) {
  const Node& node = copy.source().node(id);
  std::vector<Attr> attrs = node.attrs;
  for (Attr& attr : attrs)
    if (attr.name == "dtype")
      if (auto* text = std::get_if<std::string>(&attr.value);
          text != nullptr && *text == to_text(DType::kF32))
        *text = to_text(dtype);
  return copy.copy_node(id, std::move(attrs));
}

// A forward graph in which every f32 input, parameter, constant and state has element type `dtype`, and so
// has everything computed from them (casts to f32 become casts to `dtype`). In f64 a plan can be compared
// with one device far below the rounding of training.
inline Result<Graph> with_float_type(const Graph& forward, DType dtype) {
  if (dtype != DType::kF32 && dtype != DType::kF64)
    return Status(StatusCode::kUnsupported,
                  format("a whole graph in {}: wanted f32 or f64; mixed precision keeps f32 with it",
                         to_text(dtype)));
  GraphCopy copy(forward);
  for (size_t i = 0; i < forward.tensors().size(); ++i) {
    const TensorId id{static_cast<uint32_t>(i)};
    const Tensor& tensor = forward.tensor(id);
    if (tensor.producer == kNoNode) {
      TSR_RETURN_IF_ERROR(copy_source(copy, id, dtype));
    } else if (tensor.output_index == 0) {
      if (forward.node(tensor.producer).phase != Phase::kForward)
        return Status(StatusCode::kFailedPrecondition,
                      "the element type of a graph is chosen before it is differentiated");
      TSR_RETURN_IF_ERROR(copy_typed_node(copy, tensor.producer, dtype));
    }
  }
  TSR_RETURN_IF_ERROR(copy.copy_results());
  return std::move(copy.graph());
}

}  // namespace tessera
