// DenseModules: linear layers of sentence-transformers ("Dense" without activation) behind a model's hidden states. Pooling by
// mean, cls or last commutes with them, so that each token's vector passes through them before it.
#pragma once

#include <cstdint>
#include <vector>

#include "graph/models/layer_builder.h"

namespace tessera {

inline constexpr int64_t kMostDenseModules = 4;

struct DenseModules {
  std::vector<int64_t> widths;  // of their outputs, in order; empty: none
  bool bias = false;            // at all of them
};

// Reads the list "dense" and the flag "dense_bias".
DenseModules read_dense_modules(ConfigReader& config);
// x [B, T, C] -> [B, T, last width] by parameters "dense.<i>" [widths[i], input width] and "dense.<i>.bias"; x without modules.
TensorId add_dense_modules(LayerBuilder& b, const DenseModules& modules, TensorId x, int64_t C);

}  // namespace tessera
