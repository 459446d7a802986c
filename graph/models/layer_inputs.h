// LayerInputs: per-layer embeddings (Gemma 3n): a vector of each token for each layer, from a table of its own and the embedding.
#pragma once

#include "graph/models/decoder.h"

namespace tessera {

class LayerInputs {
 public:
  // tokens i32 [B, T]; x [B, T, C]: the scaled embedding.
  LayerInputs(LayerBuilder& b, const DecoderSizes& m, TensorId tokens, TensorId x);

  // x [B, T, C] -> x + the projection of the layer's vector, gated by x.
  TensorId add(size_t layer, TensorId x);

 private:
  LayerBuilder& b_;
  const DecoderSizes& m_;
  TensorId vectors_ = kNoTensor;  // [B, T, L * P]; kNoTensor: none
};

}  // namespace tessera
