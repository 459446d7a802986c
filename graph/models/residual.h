// Parts that several halves of a decoder's block have: norms of the residual stream, sums with it, gates.
#pragma once

#include <string>

#include "graph/models/decoder.h"

namespace tessera {

// x [B, T, C], times the weight `name` [C].
TensorId residual_norm(LayerBuilder& b, const DecoderSizes& m, const std::string& name, TensorId x);
// act(gate) * up, with the model's activation.
TensorId gated(LayerBuilder& b, const DecoderSizes& m, TensorId gate, TensorId up);
// tokens i32 [B, T] -> [B, T, C], by the table [V, C].
TensorId embed_tokens(LayerBuilder& b, const DecoderSizes& m, TensorId table, TensorId tokens);
// x [B, T, C], normed -> logits [B, T, V], by the head [V, C].
TensorId project_logits(LayerBuilder& b, const DecoderSizes& m, TensorId x, TensorId head);
TensorId add_residual(LayerBuilder& b, const DecoderSizes& m, TensorId x, TensorId added);

}  // namespace tessera
