// A model of two recurrent blocks, and attention between them where it is asked for: a gated delta rule with a convolution and
// normalized queries and keys, and a state-space dual with a bounded step. C 8; in a block 2 key heads of 4 and 4 value heads
// of 3.
#pragma once

#include <cstdint>
#include <string>

#include "graph/models/layer_builder.h"

namespace tessera::test {

// Adds the block's result to x [B, T, C].
inline TensorId recurrent_block(LayerBuilder& b, const std::string& block, TensorId x, bool is_delta) {
  constexpr int64_t C = 8, G = 2, K = 4, H = 4, V = 3, kTaps = 3, kMixed = 2 * G * K + H * V;
  b.scope(block);
  const auto conv = [&](TensorId in) {
    const TensorId w = b.parameter(block + ".conv", {kMixed, kTaps});
    if (is_delta) return b.op("causal_conv", {in, w}, {{"activation", std::string("silu")}});
    return b.op("causal_conv", {in, w, b.parameter(block + ".conv.bias", {kMixed})}, {{"bias", int64_t{1}}});
  };
  const TensorId mixed = conv(b.linear(x, block + ".in", C, kMixed));
  const auto part = [&](int64_t begin, int64_t end, int64_t width) {
    return b.split_heads(b.op("slice", {mixed}, {{"dim", int64_t{2}}, {"begin", begin}, {"end", end}}), width);
  };
  TensorId q = part(0, G * K, K), k = part(G * K, 2 * G * K, K);
  const TensorId v = part(2 * G * K, kMixed, V);
  const std::vector<TensorId> decay =
      b.op_all("step_decay",
               {b.linear(x, block + ".step", C, H), b.parameter(block + ".log_rate", {H}),
                b.parameter(block + ".step.bias", {H})},
               is_delta ? std::vector<Attr>{} : std::vector<Attr>{{"least", 0.2}, {"most", 0.9}});
  if (decay.empty()) return kNoTensor;
  TensorId beta = decay[0];
  if (is_delta) {
    q = b.op("l2_norm", {q}), k = b.op("l2_norm", {k});
    beta = b.op("sigmoid", {b.linear(x, block + ".beta", C, H)});
  }
  const TensorId scanned = b.op("state_scan", {q, k, v, decay[1], beta},
                                {{"rule", std::string(is_delta ? "delta" : "add")}, {"scale", is_delta ? 0.0 : 1.0}});
  const TensorId skipped =
      b.op("scale_channels", {b.merge_heads(v), b.parameter(block + ".skip", {H})});
  return b.op("add", {x, b.linear(b.op("add", {b.merge_heads(scanned), skipped}), block + ".out", H * V, C)});
}

inline Result<Graph> recurrent_graph(int64_t vocabulary, bool with_attention) {
  constexpr int64_t C = 8, D = 4;
  LayerBuilder b;
  const int64_t B = b.symbol("B"), T = b.symbol("T", 64);
  const TensorId tokens = b.input("tokens", DType::kI32, {B, T});
  b.scope("embedding");
  const TensorId table = b.parameter("token_embedding", {vocabulary, C});
  TensorId x = recurrent_block(b, "block.0", b.op("embedding", {table, tokens}), true);
  if (with_attention) {
    b.scope("block.1");
    const auto heads = [&](const char* name) { return b.split_heads(b.linear(x, name, C, C), D); };
    const TensorId mixed = b.op("attention", {heads("block.1.q"), heads("block.1.k"), heads("block.1.v")});
    x = b.op("add", {x, b.merge_heads(mixed)});
  }
  x = recurrent_block(b, "block.2", x, false);
  b.scope("output");
  b.output("logits", b.project(x, table));
  return b.finish();
}

}  // namespace tessera::test
