#include "graph/models/feed_forward.h"

#include "graph/base/text.h"
#include "graph/models/residual.h"

namespace tessera {
namespace {

TensorId gated(LayerBuilder& b, const DecoderSizes& m, TensorId gate, TensorId up) {
  if (!m.gelu_gate) return b.op("swiglu", {gate, up});
  return b.op("mul", {b.op("gelu", {gate}, {{"approximate", std::string("tanh")}}), up});
}

TensorId dense(LayerBuilder& b, const DecoderSizes& m, size_t layer, const std::string& block, TensorId input) {
  const int64_t F = m.ffn_width(layer);
  if (m.squared_relu)
    return b.linear(b.squared_relu(b.linear(input, block + ".up", m.C, F, m.mlp_bias)), block + ".down", F, m.C, m.mlp_bias);
  const TensorId gate = b.linear(input, block + ".gate", m.C, F, m.mlp_bias);
  const TensorId up = b.linear(input, block + ".up", m.C, F, m.mlp_bias);
  return b.linear(gated(b, m, gate, up), block + ".down", F, m.C, m.mlp_bias);
}

}  // namespace

TensorId add_feed_forward(LayerBuilder& b, const DecoderSizes& m, size_t layer, TensorId x, AuxiliaryLoss& auxiliary) {
  const std::string block = format("block.{}", layer);
  b.scope(block + ".ffn");
  const TensorId input = m.input_norm ? residual_norm(b, m, block + (m.halves.empty() ? ".ffn_norm" : m.mixer_norm()), x) : x;
  TensorId added = m.has_experts(layer) ? experts(b, m, block, input, auxiliary) : dense(b, m, layer, block, input);
  if (m.branch_norm) added = residual_norm(b, m, block + ".ffn_branch_norm", added);
  return add_residual(b, m, x, added);
}

}  // namespace tessera
