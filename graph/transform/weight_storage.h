// Graph -> graph: weights stored in fewer bits than they are computed in, for models that only run. A matmul
// that reads a weight as it is stored becomes `quantized_matmul`; decoding then costs the stored bytes.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "graph/base/result.h"
#include "graph/graph.h"
#include "graph/host_tensor.h"

namespace tessera {

// Element types in which parameters are stored, by
// name; others have the type that they are computed in.
using StoredTypes = std::map<std::string, DType, std::less<>>;

// A graph that computes with weights as f32 parameters, and the types in which these are stored.
struct LogicalGraph {
  Graph graph;
  StoredTypes stored;
};

// The graph with every narrow weight as an f32 parameter: quantized_matmul becomes matmul
// again. Graph transformations so see one form of a model, and `with_stored_weights` restores
// the types. Narrow parameters of other ops stay. kFailedPrecondition: a graph with gradients.
Result<LogicalGraph> with_logical_weights(const Graph& graph);

struct WeightStorage {
  StoredTypes types;  // bf16, f16 and block types of single parameters; others are f32
  // Type for matrices now stored in more bits: bf16, f16 or a block type; nullopt: they keep their type.
  std::optional<DType> matrices = {};
  // Set attribute `activations` of matmuls: q8_activations to "q8" for weights of block types (nf4: it stays
  // "f32"), bf16_activations to "bf16" for bf16 weights.
  bool q8_activations = false, bf16_activations = false;
};

// Stores f32 parameters that do not train in fewer bits. `types` applies to parameters read
// only by matmuls, also in backward passes, and by embeddings (from activations in f32 or
// after a cast to 16 bits); all others stay f32.
//
// With `matrices`, for graphs that only run: weights [N, K] of matmuls, experts' weights and
// tables of embeddings in that type, or, where its block does not divide their rows, in its
// substitute by find_fitting_type, else in 16 bits. Position tables, expert routers and
// adapters are stored in 16 bits. Any other parameter only read through casts to bf16 (or
// f16) is stored in that type. Tensors that are as narrow already stay, and so do all others
// (norms, biases). Names stay. kFailedPrecondition: `matrices` for a graph with gradients.
Result<Graph> with_stored_weights(const Graph& graph, const WeightStorage& storage);

// The value of a parameter stored in 16 bits, blocks or f64 as f32; an f32 value as it is.
Result<HostTensor> widen_weight(const HostTensor& value);

// The value of a parameter rounded to `type`, of the same shape: the same bits for
// the same values, whatever their stored type (graph/base/blocks/block_codec.h).
// kInvalidArgument names a value beyond the type's range.
Result<HostTensor> quantize_weight(const HostTensor& value, const TensorType& type);

}  // namespace tessera
