#include "graph/models/feed_forward.h"

#include "graph/models/residual.h"

namespace tessera {
namespace {

TensorId dense(LayerBuilder& b, const DecoderSizes& m, size_t layer, const std::string& block, TensorId input) {
  const int64_t F = m.ffn_width(layer);
  if (m.squared_relu)
    return b.linear(b.squared_relu(b.linear(input, block + ".up", m.C, F, m.mlp_bias)), block + ".down", F, m.C, m.mlp_bias);
  const TensorId gate = b.linear(input, block + ".gate", m.C, F, m.mlp_bias);
  const TensorId up = b.linear(input, block + ".up", m.C, F, m.mlp_bias);
  return b.linear(gated(b, m, gate, up), block + ".down", F, m.C, m.mlp_bias);
}

// The sum of a dense MLP and of experts, each with norms of its own.
//   x [B, T, C]: before its norm; input: after that of the dense MLP
TensorId dense_and_experts(LayerBuilder& b, const DecoderSizes& m, size_t layer, TensorId x, TensorId input,
                           AuxiliaryLoss& auxiliary) {
  const std::string block = m.block(layer);
  const TensorId dense_part = residual_norm(b, m, block + ".dense_branch_norm", dense(b, m, layer, block, input));
  const TensorId normed = residual_norm(b, m, block + ".experts_norm", x);
  const TensorId sum = experts(b, m, block, normed, x, auxiliary);
  return b.op("add", {dense_part, residual_norm(b, m, block + ".experts_branch_norm", sum)});
}

}  // namespace

TensorId add_feed_forward(LayerBuilder& b, const DecoderSizes& m, size_t layer, TensorId x, AuxiliaryLoss& auxiliary) {
  const std::string block = m.block(layer);
  b.scope(block + ".ffn");
  const TensorId input = m.input_norm ? residual_norm(b, m, block + (m.halves.empty() ? ".ffn_norm" : m.mixer_norm()), x) : x;
  TensorId added = !m.has_experts(layer) ? dense(b, m, layer, block, input)
                   : m.experts.beside_dense ? dense_and_experts(b, m, layer, x, input, auxiliary)
                                            : experts(b, m, block, input, input, auxiliary);
  if (m.branch_norm) added = residual_norm(b, m, block + ".ffn_branch_norm", added);
  return add_residual(b, m, x, added);
}

}  // namespace tessera
