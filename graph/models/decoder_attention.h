// DecoderAttention: the attention halves of a decoder's blocks.
#pragma once

#include <string>
#include <vector>

#include "graph/models/decoder.h"

namespace tessera {

class DecoderAttention {
 public:
  // positions i32 [B, T]; factors: "rope_factors", or kNoTensor.
  DecoderAttention(LayerBuilder& b, const DecoderSizes& m, TensorId positions, TensorId factors)
      : b_(b), m_(m), positions_(positions), factors_(factors) {}

  // x [B, T, C] -> x + attention. Layers in order.
  TensorId add(size_t layer, TensorId x);

 private:
  struct Heads {
    TensorId q, k, v;  // [B, T, H, D], [B, T, KV, D] twice
    TensorId gate;     // of the output, as q; kNoTensor: none
  };
  // Queries of the layer; keys and values are its own or those of an earlier layer.
  Heads heads(size_t layer, TensorId x);
  TensorId normed(const std::string& name, TensorId of, int64_t width);
  TensorId values(size_t layer, TensorId x, TensorId keys);

  LayerBuilder& b_;
  const DecoderSizes& m_;
  const TensorId positions_, factors_;
  std::vector<Heads> heads_;  // of the layers so far
};

}  // namespace tessera
