#include "graph/transform/weight_storage.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "graph/base/blocks/block_codec.h"
#include "graph/base/half.h"
#include "graph/graph_text.h"
#include "graph/models/model_family.h"
#include "graph/transform/adapters.h"
#include "graph/transform/precision.h"
#include "graph/transform/serving.h"
#include "graph/transform/training.h"
#include "tests/ok.h"

namespace tessera {
namespace {

using test::ok;

std::string type_of(const Graph& graph, std::string_view name) {
  const auto id = graph.find_tensor(name);
  return id ? to_text(graph.type(*id)) : "none";
}

int64_t count(const Graph& graph, std::string_view op) {
  int64_t found = 0;
  for (const Node& node : graph.nodes()) found += node.op->name == op ? 1 : 0;
  return found;
}

constexpr std::string_view kTied = R"(graph {
    symbol B
    input ids: i32[B]
    parameter table: f32[7, 64]
    parameter norm: f32[64]
    parameter up: f32[96, 64]
    parameter up_bias: f32[96]
    parameter down: f32[64, 96]
    parameter odd: f32[5, 48]
    parameter untransposed: f32[64, 64]
    e = embedding(table, ids)
    n, rstd = rms_norm(e, norm)
    h, pre = matmul(n, up, up_bias) {trans_w = 1, activation = "gelu"}
    d = matmul(h, down) {trans_w = 1}
    u = matmul(d, untransposed)
    part = slice(u) {dim = 1, begin = 0, end = 48}
    o = matmul(part, odd) {trans_w = 1}
    logits = matmul(u, table) {trans_w = 1}
    output logits = logits
    output o = o
  })";

// An op that was renamed is found by both names; fingerprints, by which plans and profiles name graphs, stay.
TEST_CASE("a_graph_written_before_an_op_was_renamed_reads_as_the_same_graph") {
  const auto text = [](const std::string& op) {
    return "graph {\n  symbol B\n  input x: f32[B, 64]\n  parameter w: q4_0[32, 64]\n  y = " + op +
           "(x, w) : f32[B, 32]\n  output y = y\n}";
  };
  const Graph before = ok(parse_graph(text("narrow_matmul"))),
              now = ok(parse_graph(text("quantized_matmul")));
  CHECK(print(before) == print(now));
  CHECK(before.fingerprint() == now.fingerprint());
  CHECK(before.fingerprint() == 0xd9e3c759d3c3e9a5);  // as before the rename
}

WeightStorage kept_in(DType type) { return {.types = {}, .matrices = type}; }

TEST_CASE("matrices_and_tables_are_kept_in_the_type_that_is_asked_for_or_one_that_fits_their_rows") {
  const Graph graph = ok(parse_graph(kTied));
  const Graph stored = ok(with_stored_weights(graph, kept_in(DType::kQ4_0)));
  CHECK(stored.verify().ok());
  CHECK(type_of(stored, "up") == "q4_0[96, 64]");
  CHECK(type_of(stored, "down") == "q4_0[64, 96]");
  CHECK(type_of(stored, "table") == "q4_0[7, 64]");  // shared by look-up and product
  CHECK(type_of(stored, "odd") == "bf16[5, 48]");    // 48 is no multiple of 32
  CHECK(type_of(stored, "untransposed") == "f32[64, 64]");
  CHECK(type_of(stored, "norm") == "f32[64]");
  CHECK(count(stored, "quantized_matmul") == 4);
  CHECK(count(stored, "matmul") == 1);
  CHECK(count(stored, "gelu") == 1);  // what rode on the product follows it
  const Graph nvfp4 = ok(with_stored_weights(graph, kept_in(DType::kNVFP4)));
  CHECK(type_of(nvfp4, "up") == "nvfp4[96, 64]");
  CHECK(type_of(nvfp4, "down") == "q4_0[64, 96]");  // blocks of 64 do not divide 96
  WeightStorage rounding = kept_in(DType::kNF4);
  rounding.q8_activations = true;
  const Graph nf4 = ok(with_stored_weights(graph, rounding));
  CHECK(type_of(nf4, "up") == "nf4[96, 64]");
  CHECK(type_of(nf4, "down") == "iq4_nl[64, 96]");
  for (const Node& node : nf4.nodes())  // codes of nf4 stand for no integers
    if (node.op->name == "quantized_matmul")
      CHECK(attr_string(node.attrs, "activations") ==
            (has_integer_codes(nf4.type(node.inputs[1]).dtype) ? "q8" : "f32"));
  const Graph f16 = ok(with_stored_weights(graph, kept_in(DType::kF16)));
  CHECK(type_of(f16, "odd") == "f16[5, 48]");
  CHECK(type_of(f16, "table") == "f16[7, 64]");
}

TEST_CASE("what_a_model_has_in_as_few_bits_or_fewer_stays") {
  const Graph graph = ok(parse_graph(kTied));
  const StoredTypes types = {{"table", DType::kQ8_0},
                             {"up", DType::kIQ4_NL},  // as many bits as q4_0
                             {"down", DType::kF16},
                             {"odd", DType::kF16},
                             {"untransposed", DType::kQ8_0}};
  const Graph stored = ok(with_stored_weights(graph, {.types = types, .matrices = DType::kQ4_0}));
  CHECK(type_of(stored, "table") == "q4_0[7, 64]");
  CHECK(type_of(stored, "up") == "iq4_nl[96, 64]");
  CHECK(type_of(stored, "down") == "q4_0[64, 96]");
  CHECK(type_of(stored, "odd") == "f16[5, 48]");
  CHECK(type_of(stored, "untransposed") == "q8_0[64, 64]");  // no matrix [N, K]
  const Graph wide = ok(with_stored_weights(graph, {.types = types, .matrices = DType::kQ8_0}));
  CHECK(type_of(wide, "table") == "q8_0[7, 64]");
  CHECK(type_of(wide, "up") == "iq4_nl[96, 64]");
  CHECK(type_of(wide, "down") == "q8_0[64, 96]");
}

TEST_CASE("positions_routers_and_adapters_are_kept_in_16_bits_at_least") {
  const Graph gpt2 = ok(build_model(ok(parse_shorthand("gpt2:L=1,C=32,H=2,V=40,T=16"))));
  const Graph stored = ok(with_stored_weights(gpt2, kept_in(DType::kQ4_0)));
  CHECK(type_of(stored, "position_embedding") == "bf16[16, 32]");
  CHECK(type_of(stored, "token_embedding") == "q4_0[40, 32]");
  const Graph decoding =
      ok(make_serving(gpt2, {.pages = 1, .page_size = 16, .rows = 1, .context = 16, .cache = {}}));
  CHECK(type_of(ok(with_stored_weights(decoding, kept_in(DType::kQ4_0))), "position_embedding") ==
        "bf16[16, 32]");

  const Graph moe = ok(build_model(ok(parse_shorthand("moe:L=1,C=32,H=2,KV=2,F=32,V=40,T=16,E=4,K=2"))));
  for (const DType compute : {DType::kF32, DType::kBF16}) {
    const Graph computed = compute == DType::kF32 ? moe : ok(with_mixed_precision(moe, compute));
    const Graph routed = ok(with_stored_weights(computed, kept_in(DType::kQ4_0)));
    CHECK(type_of(routed, "block.0.router") == "bf16[4, 32]");
    CHECK(type_of(routed, "block.0.q") == "q4_0[32, 32]");
    CHECK(type_of(routed, "block.0.experts.down") == "q4_0[4, 32, 32]");
  }

  const Graph llama = ok(build_model(ok(parse_shorthand("llama:L=1,C=32,H=2,KV=2,F=32,V=40,T=16"))));
  const TensorId q[] = {*llama.find_tensor("block.0.q")};
  const Graph adapted = ok(with_adapters(llama, q, {.rank = 32}));
  const Graph kept = ok(with_stored_weights(adapted, kept_in(DType::kQ4_0)));
  CHECK(type_of(kept, "block.0.q") == "q4_0[32, 32]");
  CHECK(type_of(kept, "block.0.q.lora_a") == "bf16[32, 32]");
}

TEST_CASE("in_mixed_precision_what_is_read_through_casts_is_stored_as_the_casts_make_it") {
  const Graph mixed = ok(with_mixed_precision(ok(parse_graph(kTied)), DType::kBF16));
  const Graph stored = ok(with_stored_weights(mixed, kept_in(DType::kBF16)));
  CHECK(stored.verify().ok());
  for (const char* name : {"table", "norm", "up", "up_bias", "down", "odd", "untransposed"})
    CHECK_MESSAGE(type_of(stored, name).starts_with("bf16"), name);
  CHECK(count(stored, "cast") == 0);
  CHECK(count(stored, "quantized_matmul") == 0);  // operands of one type: the ordinary product
  const Graph q8_0 = ok(with_stored_weights(mixed, kept_in(DType::kQ8_0)));
  CHECK(type_of(q8_0, "up") == "q8_0[96, 64]");
  CHECK(count(q8_0, "quantized_matmul") == 3);  // of up, down and the table
  CHECK(type_of(q8_0, "table") == "q8_0[7, 64]");
  CHECK(type_of(q8_0, "odd") == "bf16[5, 48]");
  CHECK(type_of(q8_0, "norm") == "bf16[64]");
}

TEST_CASE("a_graph_with_gradients_keeps_its_weights") {
  const Graph forward = ok(parse_graph(R"(graph {
    symbol B
    input x: f32[B, 32]
    parameter w: f32[8, 32]
    y = matmul(x, w) {trans_w = 1}
    loss = reduce_sum(y) {axes = [0, 1]}
    output loss = loss
  })"));
  const Graph step = ok(make_training_step(forward, {}));
  CHECK(with_stored_weights(step, kept_in(DType::kQ8_0)).status().code() == StatusCode::kFailedPrecondition);
}

const WeightStorage kMixed = {.types = {{"table", DType::kQ8_0},
                                        {"norm", DType::kF16},
                                        {"up", DType::kQ4_1},
                                        {"down", DType::kQ5_0},
                                        {"odd", DType::kBF16},
                                        {"untransposed", DType::kQ4_0}}};

TEST_CASE("weights_stored_in_types_of_their_own_are_read_as_they_are_and_found_again") {
  const Graph graph = ok(parse_graph(kTied));
  const Graph stored = ok(with_stored_weights(graph, kMixed));
  CHECK(stored.verify().ok());
  CHECK(type_of(stored, "table") == "q8_0[7, 64]");
  CHECK(type_of(stored, "up") == "q4_1[96, 64]");
  CHECK(type_of(stored, "down") == "q5_0[64, 96]");
  CHECK(type_of(stored, "odd") == "bf16[5, 48]");
  CHECK(type_of(stored, "untransposed") == "q4_0[64, 64]");
  CHECK(type_of(stored, "norm") == "f32[64]");  // no op reads it narrow
  CHECK(count(stored, "quantized_matmul") == 4);
  CHECK(count(stored, "quantized_matmul_grad") == 1);  // the weight the other way round
  CHECK(count(stored, "cast") == 0);
  CHECK(stored.tensor(*stored.find_tensor("up")).trainable);

  const LogicalGraph logical = ok(with_logical_weights(stored));
  CHECK(logical.graph.verify().ok());
  CHECK(print(logical.graph) == print(graph));
  CHECK(logical.stored.size() == 5);  // without norm
  CHECK(print(ok(with_stored_weights(logical.graph, {.types = logical.stored}))) == print(stored));
}

TEST_CASE("experts_are_read_in_their_own_types_forward_and_backward") {
  Graph moe = ok(build_model(ok(parse_shorthand("moe:L=1,C=32,H=2,KV=2,F=32,V=40,T=16,E=4,K=2"))));
  const WeightStorage storage = {.types = {{"block.0.experts.gate", DType::kQ8_0},
                                           {"block.0.experts.up", DType::kBF16},
                                           {"block.0.experts.down", DType::kQ4_0}},
                                 .q8_activations = true};
  const Graph stored = ok(with_stored_weights(moe, storage));
  CHECK(stored.verify().ok());
  int rounded = 0;
  for (const Node& node : stored.nodes())
    if (node.op->name == "expert_matmul") rounded += attr_string(node.attrs, "activations") == "q8" ? 1 : 0;
  CHECK(rounded == 2);  // not of bf16
  const LogicalGraph logical = ok(with_logical_weights(stored));
  CHECK(print(logical.graph) == print(moe));
  CHECK(logical.stored == storage.types);

  for (const TensorId id : moe.tensors_of_kind(TensorKind::kParameter))
    if (moe.tensor(id).name.find("experts") != std::string::npos) moe.set_trainable(id, false);
  REQUIRE(add_token_loss(moe).ok());
  const Graph step = ok(with_stored_weights(ok(make_training_step(moe, {})), {.types = storage.types}));
  CHECK(step.verify().ok());
  CHECK(type_of(step, "block.0.experts.down") == "q4_0[4, 32, 32]");
  CHECK(count(step, "expert_matmul") == 6);
  CHECK(count(step, "expert_matmul_weight_grad") == 0);
  CHECK(with_bf16_parameters(step).ok());
}

TEST_CASE("a_table_of_16_bits_is_looked_up_in_f32_again") {
  const Graph graph = ok(parse_graph(kTied));
  const WeightStorage storage = {.types = {{"table", DType::kBF16}}};
  const Graph stored = ok(with_stored_weights(graph, storage));
  CHECK(count(stored, "cast") == 1);
  CHECK(print(ok(with_logical_weights(stored)).graph) == print(graph));
}

TEST_CASE("in_mixed_precision_types_of_their_own_replace_casts") {
  const Graph mixed = ok(with_mixed_precision(ok(parse_graph(kTied)), DType::kBF16));
  const Graph stored = ok(with_stored_weights(mixed, kMixed));
  CHECK(stored.verify().ok());
  CHECK(type_of(stored, "table") == "q8_0[7, 64]");
  CHECK(type_of(stored, "up") == "q4_1[96, 64]");
  CHECK(type_of(stored, "odd") == "bf16[5, 48]");
  for (const Node& node : stored.nodes())
    if (node.op->name == "quantized_matmul") CHECK(stored.type(node.inputs[0]).dtype == DType::kBF16);
}

TEST_CASE("what_trains_stays_f32_and_what_does_not_is_stored_in_both_passes") {
  Graph forward = ok(parse_graph(R"(graph {
    symbol B
    input x: f32[B, 32]
    parameter below: f32[64, 32]
    parameter frozen: f32[32, 64]
    parameter head: f32[8, 32]
    h = matmul(x, below) {trans_w = 1}
    f = matmul(h, frozen) {trans_w = 1}
    y = matmul(f, head) {trans_w = 1}
    loss = reduce_sum(y) {axes = [0, 1]}
    output loss = loss
  })"));
  forward.set_trainable(*forward.find_tensor("frozen"), false);
  const Graph step = ok(make_training_step(forward, {}));
  const WeightStorage storage = {
      .types = {{"below", DType::kQ8_0}, {"frozen", DType::kQ4_0}, {"head", DType::kQ8_0}}};
  const Graph stored = ok(with_stored_weights(step, storage));
  CHECK(stored.verify().ok());
  CHECK(type_of(stored, "below") == "f32[64, 32]");
  CHECK(type_of(stored, "head") == "f32[8, 32]");
  CHECK(type_of(stored, "frozen") == "q4_0[32, 64]");
  CHECK(count(stored, "quantized_matmul") == 1);
  CHECK(count(stored, "quantized_matmul_grad") == 1);
  CHECK(stored.gradients().size() == step.gradients().size());
  CHECK(with_logical_weights(stored).status().code() == StatusCode::kFailedPrecondition);
}

HostTensor waves(const Shape& shape, float size) {
  std::vector<float> values(static_cast<size_t>(shape.elements()));
  for (size_t i = 0; i < values.size(); ++i) values[i] = size * std::sin(static_cast<float>(i * i % 9973));
  return HostTensor::copy_of<float>({DType::kF32, shape}, values);
}

TEST_CASE("a_stored_weight_has_the_bits_of_the_block_codec") {
  // More than is converted at a time.
  const HostTensor value = waves({9, 512}, 0.3f);
  int compared = 0;
  for (int i = 0; i < kDTypeCount; ++i) {
    const auto type = static_cast<DType>(i);
    if (!is_narrow_type(type) || !can_encode(type)) continue;
    CAPTURE(to_text(type));
    const HostTensor stored = ok(quantize_weight(value, {type, {9, 512}}));
    std::vector<std::byte> wanted(static_cast<size_t>(bytes(stored.type)));
    REQUIRE(encode_blocks(type, value.as<float>().data(), 9 * 512, wanted.data()).ok());
    CHECK(std::ranges::equal(stored.data, wanted));
    // From blocks of another type: the values that they stand for.
    const HostTensor blocks = ok(quantize_weight(value, {DType::kQ8_0, {9, 512}}));
    const HostTensor again = ok(quantize_weight(blocks, {type, {9, 512}}));
    const HostTensor decoded = ok(widen_weight(blocks));
    if (type != DType::kQ8_0) {
      REQUIRE(encode_blocks(type, decoded.as<float>().data(), 9 * 512, wanted.data()).ok());
      CHECK(std::ranges::equal(again.data, wanted));
    }
    ++compared;
  }
  CHECK(compared == 21);
}

TEST_CASE("a_weight_that_a_type_does_not_hold_is_refused_by_its_value") {
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(), 1e8f}) {
    std::vector<float> values(64 * 64, 1.0f);
    values[2048 + 7] = bad;
    const HostTensor value = HostTensor::copy_of<float>({DType::kF32, {64, 64}}, values);
    for (const DType type : {DType::kQ8_0, DType::kQ4_0, DType::kF16}) {
      const Status refused = quantize_weight(value, {type, {64, 64}}).status();
      CHECK(refused.code() == StatusCode::kInvalidArgument);
      CHECK(refused.message().find("from element 2048 on: value 7 is") != std::string::npos);
    }
  }
  CHECK(quantize_weight(waves({2, 32}, 1), {DType::kQ8_0, {1, 64}}).status().code() ==
        StatusCode::kInvalidArgument);
  CHECK(quantize_weight(waves({1, 256}, 1), {DType::kIQ3_S, {1, 256}}).status().code() ==
        StatusCode::kUnsupported);
}

TEST_CASE("sixteen_bit_floats_round_to_nearest_even_and_keep_what_they_hold") {
  CHECK(f16_from_f32(1.0f) == 0x3c00);
  CHECK(f16_from_f32(-65504.0f) == 0xfbff);
  CHECK(f16_from_f32(65519.0f) == 0x7bff);
  CHECK(f16_from_f32(65520.0f) == 0x7c00);
  CHECK(f16_from_f32(0x1p-24f) == 0x0001);
  CHECK(f16_from_f32(0x1p-25f) == 0x0000);         // halfway: to even
  CHECK(f16_from_f32(0x1.8p-24f) == 0x0002);       // halfway: to even
  CHECK(f16_from_f32(1.0f + 0x1p-11f) == 0x3c00);  // halfway: to even
  CHECK(f16_from_f32(1.0f + 0x1.8p-10f) == 0x3c02);
  CHECK(bf16_from_f32(1.0f + 0x1p-8f) == 0x3f80);
  CHECK(bf16_from_f32(1.0f + 0x1.8p-7f) == 0x3f82);
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    const float wide = f32_from_f16(half), brain = f32_from_bf16(half);
    const bool same = std::isnan(wide) || f16_from_f32(wide) == half;
    const bool same_brain = std::isnan(brain) || bf16_from_f32(brain) == half;
    if (!same || !same_brain) CHECK_MESSAGE(false, bits);
  }
  CHECK(std::isnan(f32_from_f16(f16_from_f32(std::numeric_limits<float>::quiet_NaN()))));
  CHECK(std::isnan(f32_from_bf16(bf16_from_f32(std::bit_cast<float>(0x7f800001u)))));
}

}  // namespace
}  // namespace tessera
