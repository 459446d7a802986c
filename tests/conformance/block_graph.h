// The block of the sharding algebra's fixtures: 2 KV heads of 2 queries, layer_norm before attention, a bias
// behind it, rms_norm before a gated feed-forward half and before the tied head. C 16, F 24, V 40; 2640
// parameters.
#pragma once

#include "graph/models/layer_builder.h"

namespace tessera::parity {

inline Result<Graph> block_graph() {
  constexpr int64_t C = 16, D = 4, H = 4, KV = 2, F = 24, V = 40;
  LayerBuilder b;
  const int64_t B = b.symbol("B"), T = b.symbol("T", 64);
  const TensorId tokens = b.input("tokens", DType::kI32, {B, T});
  const TensorId positions = b.input("positions", DType::kI32, {B, T});
  const TensorId table = b.parameter("token_embedding", {V, C});
  const TensorId x = b.op("embedding", {table, tokens});
  const TensorId normed = b.op(
      "layer_norm", {x, b.parameter("norm1.weight", {C}), b.parameter("norm1.bias", {C})}, {{"eps", 1e-5}});
  const std::vector<Attr> turn = {{"theta", 1e4}, {"style", std::string("interleaved")}};
  const TensorId q = b.op("rope", {b.split_heads(b.linear(normed, "q", C, H * D), D), positions}, turn);
  const TensorId k = b.op("rope", {b.split_heads(b.linear(normed, "k", C, KV * D), D), positions}, turn);
  const TensorId v = b.split_heads(b.linear(normed, "v", C, KV * D), D);
  const TensorId mixed = b.op("attention", {q, k, v}, {{"causal", int64_t{1}}});
  const TensorId y = b.op("add", {x, b.linear_with_bias(b.merge_heads(mixed), "o", H * D, C)});
  const TensorId wide = b.op("rms_norm", {y, b.parameter("norm2", {C})}, {{"eps", 1e-5}});
  const TensorId fed =
      b.linear(b.op("swiglu", {b.linear(wide, "gate", C, F), b.linear(wide, "up", C, F)}), "down", F, C);
  const TensorId last = b.op("rms_norm", {b.op("add", {y, fed}), b.parameter("norm3", {C})}, {{"eps", 1e-5}});
  b.output("logits", b.project(last, table));
  return b.finish();
}

}  // namespace tessera::parity
