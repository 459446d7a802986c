// A model of two blocks with the variations of model families: windows, capped scores, values of another width than
// keys, packed documents (or none of these), sinks; rope of a part of each head by scaled frequencies; routing by
// groups. C 16; keys of 6 elements, values of 4.
#pragma once

#include <string>
#include <vector>

#include "graph/models/layer_builder.h"

namespace tessera::test {

// Two of four experts, of the better of two groups, chosen by sigmoids and a bias; gpt-oss' gated unit with closer
// bounds.
inline TensorId experts_by_groups(LayerBuilder& b, const std::string& block, TensorId x, TensorId bias) {
  constexpr int64_t C = 16, F = 12, E = 4;
  const TensorId probs = b.op("sigmoid", {b.linear(x, block + ".router", C, E)});
  const std::vector<TensorId> routed =
      b.op_all("moe_route", {probs, bias}, {{"k", int64_t{2}}, {"groups", int64_t{2}}});
  if (routed.empty()) return kNoTensor;
  const TensorId there = b.op("moe_dispatch", {x, routed[3]});  // [E, B, S, C]
  const auto matmul = [&](TensorId input, const char* name, int64_t k, int64_t n) {
    return b.op("expert_matmul", {input, b.parameter(block + name, {E, n, k}), routed[4]},
                {{"trans_w", int64_t{1}}});
  };
  const TensorId gate = b.op("clamp", {matmul(there, ".experts.gate", C, F)}, {{"max", 0.1}});
  const TensorId up = b.op("clamp", {matmul(there, ".experts.up", C, F)}, {{"min", -0.1}, {"max", 0.1}});
  const TensorId bent = b.op("quick_gelu", {gate});
  const TensorId wide = b.op("add", {b.op("mul", {bent, up}), bent});
  return b.op("moe_combine", {matmul(wide, ".experts.down", F, C), routed[0], routed[1], routed[2]});
}

inline Result<Graph> masked_graph(int64_t V, bool packed) {
  constexpr int64_t C = 16, D = 6, R = 4, W = 4, H = 4, KV = 2, F = 24;
  LayerBuilder b;
  const int64_t B = b.symbol("B"), T = b.symbol("T", 64);
  const TensorId tokens = b.input("tokens", DType::kI32, {B, T});
  const TensorId positions = b.input("positions", DType::kI32, {B, T});
  const TensorId segments = packed ? b.input("segments", DType::kI32, {B, T}) : kNoTensor;
  b.scope("embedding");
  const TensorId table = b.parameter("token_embedding", {V, C});
  const TensorId factors = b.parameter("rope_factors", {1, R / 2});
  const TensorId bias = b.parameter("router_bias", {4});
  TensorId x = b.op("embedding", {table, tokens});
  const TensorId angles =
      b.op("rope_angles", {positions, factors}, {{"head_size", R}, {"magnitude", 1.2}, {"theta", 100.0}});
  for (const int64_t layer : {0, 1}) {
    const std::string block = "block." + std::to_string(layer);
    b.scope(block + ".attention");
    const auto heads = [&](const char* name, int64_t count, int64_t width) {
      return b.split_heads(b.linear(x, block + name, C, count * width), width);
    };
    const TensorId q = b.op("rope_rotate", {heads(".attention.q", H, D), angles});
    const TensorId k = b.op("rope_rotate", {heads(".attention.k", KV, D), angles});
    const TensorId v = heads(".attention.v", KV, W);
    const std::vector<TensorId> attended =
        layer == 0 ? b.op_all("attention", {q, k, v}, {{"window", int64_t{4}}, {"softcap", 0.7}})
        : packed   ? b.op_all("attention", {q, k, v, segments, segments}, {{"window", int64_t{7}}})
                   : b.op_all("attention", {q, k, v});
    if (attended.empty()) break;
    const TensorId sinks = b.parameter(block + ".attention.sinks", {H});
    const TensorId mixed = b.op("attention_sink", {attended[0], attended[1], sinks});
    const TensorId y = b.op("add", {x, b.linear(b.merge_heads(mixed), block + ".attention.o", H * W, C)});
    b.scope(block + ".ffn");
    const auto feed_forward = [&] {
      const TensorId wide =
          b.op("swiglu", {b.linear(y, block + ".ffn.gate", C, F), b.linear(y, block + ".ffn.up", C, F)});
      return b.linear(wide, block + ".ffn.down", F, C);
    };
    x = b.op("add", {y, layer == 0 ? feed_forward() : experts_by_groups(b, block, y, bias)});
  }
  b.scope("output");
  b.output("logits", b.project(x, table));
  TSR_ASSIGN_OR_RETURN(Graph graph, b.finish());
  graph.set_trainable(factors, false);
  graph.set_trainable(bias, false);
  return graph;
}

}  // namespace tessera::test
