// FLOPs, bytes and what is kept, against closed forms and small graphs counted by hand.
#include "graph/analysis/graph_profile.h"

#include <doctest/doctest.h>

#include <map>
#include <string>

#include "graph/models/model_family.h"
#include "graph/transform/training.h"

using namespace tessera;

namespace {

struct Counted {
  GraphProfile profile;
  std::map<std::string, double> forward, backward;  // FLOPs by op
};

Counted count(std::string_view shorthand, int64_t batch, int64_t tokens) {
  const Result<ModelConfig> config = parse_shorthand(shorthand);
  REQUIRE(config.ok());
  Result<Graph> forward = build_model(*config);
  REQUIRE(forward.ok());
  REQUIRE(add_token_loss(*forward).ok());
  const Result<Graph> step = make_training_step(*forward, {});
  REQUIRE(step.ok());
  const std::vector<std::pair<std::string, int64_t>> symbols = {{"B", batch}, {"T", tokens}};
  const Result<Graph> bound = step->bind(symbols);
  REQUIRE(bound.ok());
  Result<GraphProfile> profile = profile_graph(*bound);
  REQUIRE(profile.ok());
  Counted counted{std::move(*profile), {}, {}};
  for (size_t n = 0; n < bound->nodes().size(); ++n) {
    const Node& node = bound->nodes()[n];
    const bool is_forward = work_phase(node.phase) == WorkPhase::kForward;
    (is_forward ? counted.forward : counted.backward)[std::string(node.op->name)] +=
        counted.profile.nodes[n].flops;
  }
  return counted;
}

}  // namespace

TEST_CASE("GPT-2 computes what the closed form says: products, and attention over the keys that are seen") {
  const double L = 3, C = 64, H = 4, V = 211, B = 2, T = 24, M = B * T;
  const Counted counted = count("gpt2:L=3,C=64,H=4,V=211,T=32", 2, 24);
  const double matmul_flops = 2 * M * (L * (3 * C * C + C * C + 8 * C * C) + C * V);
  const double biases = M * L * (3 * C + C + 4 * C + C);
  CHECK(counted.forward.at("matmul") == matmul_flops + biases);
  // Both gradients of every product, and no bias in either.
  CHECK(counted.backward.at("matmul") + counted.backward.at("matmul_weight_grad") == 2 * matmul_flops);
  const double pairs = T * (T + 1) / 2;
  CHECK(counted.forward.at("attention") == L * 4 * B * H * (C / H) * pairs);
  CHECK(counted.backward.at("attention_grad") == L * 10 * B * H * (C / H) * pairs);
}

TEST_CASE("Llama with grouped heads computes what the closed form says") {
  const double L = 2, C = 64, H = 4, KV = 2, F = 96, V = 100, B = 3, T = 16, M = B * T, D = C / H;
  const Counted counted = count("llama:L=2,C=64,H=4,KV=2,F=96,V=100,T=32", 3, 16);
  const double matmul_flops = 2 * M * (L * (2 * C * C + 2 * C * KV * D + 3 * C * F) + C * V);
  CHECK(counted.forward.at("matmul") == matmul_flops);
  CHECK(counted.backward.at("matmul") + counted.backward.at("matmul_weight_grad") == 2 * matmul_flops);
  CHECK(counted.forward.at("attention") == L * 4 * B * H * D * T * (T + 1) / 2);
}

TEST_CASE("attention that is not causal sees every pair") {
  Graph graph;
  const TensorType q{DType::kF32, Shape{2, 8, 4, 16}}, k{DType::kF32, Shape{2, 24, 2, 16}};
  const auto a = graph.add_tensor("q", q, TensorKind::kInput),
             b = graph.add_tensor("k", k, TensorKind::kInput),
             c = graph.add_tensor("v", k, TensorKind::kInput);
  const TensorId inputs[] = {*a, *b, *c};
  REQUIRE(graph.add_node("attention", inputs, {{"causal", int64_t{0}}}).ok());
  const Result<GraphProfile> profile = profile_graph(graph);
  REQUIRE(profile.ok());
  CHECK(profile->nodes[0].flops == 4.0 * 2 * 4 * 16 * 8 * 24);
  CHECK(profile->nodes[0].bytes_read == 4.0 * (2 * 8 * 4 * 16 + 2 * 2 * 24 * 2 * 16));
}

TEST_CASE("attention in a window sees the pairs within it, on shards too") {
  const Graph graph =
      parse_graph(
          "graph {\n  input q: f32[1, 5, 1, 2]\n  input k: f32[1, 5, 1, 2]\n"
          "  input v: f32[1, 5, 1, 6]\n"
          "  a, b = attention(q, k, v) {window = 3} : f32[1, 5, 1, 6], f32[1, 5, 1]\n"
          "  c, d = attention(q, k, v) {causal = 0, window = 2} : f32[1, 5, 1, 6], f32[1, 5, 1]\n"
          "  output a = a\n  output c = c\n}")
          .value();
  const GraphProfile profile = profile_graph(graph).value();
  const double a_pair = 2 * (2 + 6);  // of keys and of values
  CHECK(profile.nodes[0].flops == a_pair * (1 + 2 + 3 + 3 + 3));
  CHECK(profile.nodes[1].flops == a_pair * (2 + 3 + 3 + 3 + 2));
  // Queries 3 and 4, and of the keys 1 and 2: of these query 3 sees both, query 4 one.
  const Node& node = graph.nodes()[0];
  const TensorType q{DType::kF32, Shape{1, 2, 1, 2}}, v{DType::kF32, Shape{1, 2, 1, 6}};
  const std::vector<TensorType> in = {q, q, v}, out = {v, {DType::kF32, Shape{1, 2, 1}}};
  const FactorView factors[] = {{'t', 5, 1, 1, {3}, {5}}, {'s', 5, 1, 1, {1}, {3}}};
  CHECK(node.op->cost({node.attrs, in, out, factors}).flops == a_pair * 3);
}

TEST_CASE("what backward reads is kept once, through views too; the rest is transient") {
  const Result<Graph> graph = parse_graph(R"(graph {
    input x: f32[8, 4]
    a = relu(x) : f32[8, 4]
    b = relu(a) : f32[8, 4]
    c = relu(b) : f32[8, 4]
    d = relu_grad(b, c) : f32[8, 4] @phase backward_input
    e = relu_grad(b, d) : f32[8, 4] @phase backward_input
    output y = e
  })");
  REQUIRE_MESSAGE(graph.ok(), graph.status().to_string());
  const Result<GraphProfile> profile = profile_graph(*graph);
  REQUIRE(profile.ok());
  const int64_t one = 8 * 4 * 4;
  CHECK(profile->phases[0].saved_bytes == 2 * one);      // b and c
  CHECK(profile->phases[0].transient_bytes == one);      // a, until b is made
  CHECK(profile->phases[1].transient_bytes == 2 * one);  // d and e
  CHECK(profile->total().saved_bytes == 2 * one);
}

TEST_CASE("symbols without a value are refused by name") {
  Graph graph;
  const int64_t batch = graph.symbol("B");
  REQUIRE(graph.add_tensor("x", {DType::kF32, Shape{batch, 4}}, TensorKind::kInput).ok());
  const Result<GraphProfile> profile = profile_graph(graph);
  REQUIRE_FALSE(profile.ok());
  CHECK(std::string(profile.status().message()).find("'x'") != std::string::npos);
}
