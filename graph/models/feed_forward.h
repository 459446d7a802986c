// The feed-forward half of a decoder's block: a gated MLP, or a mixture of experts.
#pragma once

#include <string>

#include "graph/models/decoder.h"
#include "graph/models/experts.h"

namespace tessera {

// x [B, T, C] -> x + what the half adds.
TensorId add_feed_forward(LayerBuilder& b, const DecoderSizes& m, size_t layer, TensorId x, AuxiliaryLoss& auxiliary);

}  // namespace tessera
