// Graph -> graph: products of single weights, each multiplied by a number, for formats whose
// blocks alone do not reach a weight's magnitude (NVFP4). The weights stay as they are.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "graph/base/result.h"
#include "graph/graph.h"

namespace tessera {

// By parameter; finite.
using ProductScales = std::map<std::string, float, std::less<>>;

// Whether with_scaled_products can scale the products of a parameter.
bool can_scale_products(const Graph& graph, std::string_view parameter);

// A `scale` follows each matmul of a weight named in `scales`, and takes the
// name of its result. kUnsupported: names of parameters without a matmul, or
// with other readers, and matmuls that add a bias or apply an activation.
Result<Graph> with_scaled_products(const Graph& graph, const ProductScales& scales);

}  // namespace tessera
