// Graph -> graph: weights stored in fewer bits than they are computed in, for models that only run. A matmul
// that reads a weight as it is stored becomes `quantized_matmul`; decoding then costs the stored bytes.
#pragma once

#include <cstdint>
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

// Stores in `format` the f32 parameters that only matmuls read, as transposed weight [N, K] (from activations
// in f32 or after a cast to 16 bits). Tables of embeddings, also where a matmul shares them, and rows that
// are no multiple of 32 numbers are stored in bf16 at least. Parameters of which only casts to 16 bits are
// read are stored in that type. All others (norms, biases, experts' weights) stay. Names stay; scales are
// parameters of their own (`scale_name`). kFailedPrecondition: a graph with gradients.
Result<Graph> with_stored_weights(const Graph& graph, WeightFormat format);
inline std::string scale_name(std::string_view weight) { return std::string(weight) + ".scale"; }

// The value of an f32 parameter as such a graph stores it: rounded to nearest. `scales` is the type of its
// scales, null for none. kInvalidArgument where a weight is not finite or too large for its scale.
struct StoredWeight {
  HostTensor numbers;
  std::optional<HostTensor> scales;
};
Result<StoredWeight> quantize_weight(const HostTensor& value, const TensorType& numbers,
                                     const TensorType* scales);

}  // namespace tessera
