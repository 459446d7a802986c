// Rotation: the rotary positions of one layer of a decoder.
#pragma once

#include <string>

#include "graph/models/decoder.h"

namespace tessera {

class Rotation {
 public:
  // positions i32 [B, T]; factors: "rope_factors", or kNoTensor. `head_size`: of the rotated tensors.
  Rotation(LayerBuilder& b, const DecoderSizes& m, size_t layer, int64_t head_size, TensorId positions,
           TensorId factors);

  TensorId operator()(TensorId x /* [B, T, heads, head_size] */);

 private:
  LayerBuilder& b_;
  const TensorId positions_;
  bool is_plain_ = false;
  double theta_ = 0;
  std::string style_;
  TensorId angles_ = kNoTensor;  // kNoTensor and not plain: no rotation
};

}  // namespace tessera
