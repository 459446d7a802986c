// Queries, keys and values by way of narrow latent vectors (multi-head latent attention; DeepSeek-V2, section 2.1).
#pragma once

#include <string>

#include "graph/models/decoder.h"

namespace tessera {

struct QueryKeyValue {
  TensorId q, k, v;  // [B, T, H, N + R] twice, [B, T, H, VD]
};

// x [B, T, C]: the layer's input, after its norm.  A latent vector of KA numbers, normed, gives N numbers of each head
// of k, and v; the R others of k, which are rotated, are the same in all heads. Queries are made of x, or of a latent
// vector of QA numbers. The rotated part stands first in heads of q and k here: products do not depend on the order.
QueryKeyValue latent_heads(LayerBuilder& b, const DecoderSizes& m, size_t layer, TensorId x,
                           TensorId positions, TensorId factors);

}  // namespace tessera
