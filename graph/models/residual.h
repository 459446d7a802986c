// The residual stream of a decoder: its norms, and sums with what halves of blocks add.
#pragma once

#include <string>

#include "graph/models/decoder.h"

namespace tessera {

// x [B, T, C], times the weight `name` [C].
TensorId residual_norm(LayerBuilder& b, const DecoderSizes& m, const std::string& name, TensorId x);
TensorId add_residual(LayerBuilder& b, const DecoderSizes& m, TensorId x, TensorId added);

}  // namespace tessera
