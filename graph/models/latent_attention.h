// Multi-head latent attention: queries, keys and values as projections of narrow latent vectors (DeepSeek-V2, section 2.1).
#pragma once

#include <string>

#include "graph/models/decoder.h"

namespace tessera {

struct QueryKeyValue {
  TensorId q, k, v;  // [B, T, H, N + R] twice, [B, T, H, VD]
};

// x [B, T, C]: the layer's input, after its norm. The latent vector of KA elements, normed, is projected to v and to N
// elements of each head of k; the R others of k, rotated, are equal in all heads. Queries are projections of x, or of a
// latent vector of QA elements. The rotated part comes first in heads of q and k here: products do not depend on the order.
QueryKeyValue latent_heads(LayerBuilder& b, const DecoderSizes& m, size_t layer, TensorId x,
                           TensorId positions, TensorId factors);

}  // namespace tessera
