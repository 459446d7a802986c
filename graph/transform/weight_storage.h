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

enum class WeightFormat : uint8_t {
  kModel,  // as the graph has them
  kBF16,
  kInt8,  // i8, an f16 scale for each 64 numbers of a row (32 where a row is no multiple of 64)
  kInt4,  // two numbers a byte, an f16 scale for each 32
};
std::optional<WeightFormat> weight_format_from_name(
    std::string_view name);  // "model", "bf16", "int8", "int4"

// Element types in which parameters are stored, by name; those that are not named are stored as they are
// computed.
using StoredTypes = std::map<std::string, DType, std::less<>>;

// A graph that computes with weights as f32 parameters, and the types in which these are stored.
struct LogicalGraph {
  Graph graph;
  StoredTypes stored;
};

// The graph with every weight that it reads narrow as an f32 parameter: quantized_matmul becomes matmul
// again. Graph transformations see one form of a model so, and `with_stored_weights` brings the types back.
// Parameters that other ops read narrow stay. kFailedPrecondition: a graph with gradients.
Result<LogicalGraph> with_logical_weights(const Graph& graph);

struct WeightStorage {
  StoredTypes types;  // bf16, f16 and block types of single parameters; others are f32
  WeightFormat format = WeightFormat::kModel;  // of all others, and of 16-bit ones where it is narrower
  bool q8_activations = false;                 // attribute `activations` of matmuls with block types: "q8"
};

// Stores f32 parameters that do not train in fewer bits. With a type of its own: what matmuls, also in
// backward passes, and embeddings alone read (from activations in f32 or after a cast to 16 bits); anything
// else stays f32. With `format`, for graphs that only run: weights [N, K] of matmuls in that format, tables
// of embeddings, also where a matmul shares them, and rows that are no multiple of 32 numbers in bf16 at
// least, parameters of which only casts to 16 bits are read in that type. All others (norms, biases, experts'
// weights) stay. Names stay; scales are parameters of their own (`scale_name`). kFailedPrecondition: `format`
// for a graph with gradients.
Result<Graph> with_stored_weights(const Graph& graph, const WeightStorage& storage);
inline std::string scale_name(std::string_view weight) { return std::string(weight) + ".scale"; }

// The value of a parameter stored in 16 bits, blocks or f64 as f32; an f32 value as it is.
Result<HostTensor> widen_weight(const HostTensor& value);

// The value of a parameter as such a graph stores it: widened, or rounded to nearest. `scales` is the type of
// its scales, null for none. kInvalidArgument where a weight is not finite or too large for its scale.
struct StoredWeight {
  HostTensor numbers;
  std::optional<HostTensor> scales;
};
Result<StoredWeight> quantize_weight(const HostTensor& value, const TensorType& numbers,
                                     const TensorType* scales);

}  // namespace tessera
