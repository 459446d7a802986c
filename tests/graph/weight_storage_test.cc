#include "graph/transform/weight_storage.h"

#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "graph/base/half.h"
#include "graph/graph_text.h"
#include "graph/models/model_family.h"
#include "graph/transform/precision.h"
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
    return "graph {\n  symbol B\n  input x: f32[B, 64]\n  parameter w: i8[32, 64]\n  parameter s: f16[32, "
           "1]\n  y = " +
           op + "(x, w, s) : f32[B, 32]\n  output y = y\n}";
  };
  const Graph before = ok(parse_graph(text("narrow_matmul"))),
              now = ok(parse_graph(text("quantized_matmul")));
  CHECK(print(before) == print(now));
  CHECK(before.fingerprint() == now.fingerprint());
  CHECK(before.fingerprint() == 0x0806c4f53dc624d0);  // as before the rename
}

TEST_CASE("matrices_that_only_products_read_are_stored_as_integers_and_tables_in_bf16") {
  const Graph graph = ok(parse_graph(kTied));
  const Graph stored = ok(with_stored_weights(graph, {.types = {}, .format = WeightFormat::kInt4}));
  CHECK(stored.verify().ok());
  CHECK(type_of(stored, "up") == "u8[96, 32]");
  CHECK(type_of(stored, "up.scale") == "f16[96, 2]");
  CHECK(type_of(stored, "down") == "u8[64, 48]");
  CHECK(type_of(stored, "down.scale") == "f16[64, 3]");
  CHECK(type_of(stored, "table") == "bf16[7, 64]");  // shared by look-up and product
  CHECK(type_of(stored, "odd") == "bf16[5, 48]");    // 48 is no multiple of 32
  CHECK(type_of(stored, "untransposed") == "f32[64, 64]");
  CHECK(type_of(stored, "norm") == "f32[64]");
  CHECK(count(stored, "quantized_matmul") == 4);
  CHECK(count(stored, "matmul") == 1);
  CHECK(count(stored, "gelu") == 1);  // what rode on the product follows it
  const Graph int8 = ok(with_stored_weights(graph, {.types = {}, .format = WeightFormat::kInt8}));
  CHECK(type_of(int8, "up.scale") == "f16[96, 1]");    // groups of 64
  CHECK(type_of(int8, "down.scale") == "f16[64, 3]");  // 96 is none of 64: groups of 32
}

TEST_CASE("in_mixed_precision_what_is_read_through_casts_is_stored_as_the_casts_make_it") {
  const Graph mixed = ok(with_mixed_precision(ok(parse_graph(kTied)), DType::kBF16));
  const Graph stored = ok(with_stored_weights(mixed, {.types = {}, .format = WeightFormat::kBF16}));
  CHECK(stored.verify().ok());
  for (const char* name : {"table", "norm", "up", "up_bias", "down", "odd", "untransposed"})
    CHECK_MESSAGE(type_of(stored, name).starts_with("bf16"), name);
  CHECK(count(stored, "cast") == 0);
  CHECK(count(stored, "quantized_matmul") == 0);  // operands of one type: the ordinary product
  const Graph int8 = ok(with_stored_weights(mixed, {.types = {}, .format = WeightFormat::kInt8}));
  CHECK(type_of(int8, "up") == "i8[96, 64]");
  CHECK(count(int8, "quantized_matmul") == 2);
  CHECK(type_of(int8, "table") == "bf16[7, 64]");
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
  CHECK(with_stored_weights(step, {.types = {}, .format = WeightFormat::kInt8}).status().code() ==
        StatusCode::kFailedPrecondition);
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

// The value that stands for number k of a stored row.
double restored(const StoredWeight& stored, int64_t group, int64_t k) {
  const float scale = f32_from_f16(stored.scales->as<uint16_t>()[static_cast<size_t>(k / group)]);
  if (stored.numbers.type.dtype == DType::kI8)
    return scale * stored.numbers.as<int8_t>()[static_cast<size_t>(k)];
  const int pair = stored.numbers.as<uint8_t>()[static_cast<size_t>(k / 32 * 16 + k % 16)];
  return scale * ((k % 32 < 16 ? pair & 15 : pair >> 4) - 8);
}

TEST_CASE("a_stored_weight_is_within_half_a_step_of_the_weight") {
  std::vector<float> row(128);
  for (size_t k = 0; k < row.size(); ++k)
    row[k] = std::sin(static_cast<float>(k * k)) * (k < 64 ? 0.02f : 3.0f);
  for (size_t k = 96; k < 128; ++k) row[k] = 0;  // a group of zeros has a scale of zero
  const HostTensor value = HostTensor::copy_of<float>({DType::kF32, {1, 128}}, row);
  const TensorType scales8{DType::kF16, {1, 2}}, scales4{DType::kF16, {1, 4}};
  const StoredWeight int8 = ok(quantize_weight(value, {DType::kI8, {1, 128}}, &scales8));
  const StoredWeight int4 = ok(quantize_weight(value, {DType::kU8, {1, 64}}, &scales4));
  for (int64_t k = 0; k < 128; ++k) {
    const double wanted = row[static_cast<size_t>(k)];
    const double step8 = std::fabs(f32_from_f16(int8.scales->as<uint16_t>()[static_cast<size_t>(k / 64)]));
    const double step4 = std::fabs(f32_from_f16(int4.scales->as<uint16_t>()[static_cast<size_t>(k / 32)]));
    // The scale is rounded to 11 bits, which moves the ends of 127 steps by 127 * 2^-11 of one, and of 8 by
    // less.
    CHECK(std::fabs(restored(int8, 64, k) - wanted) <= step8 * 0.57);
    // On the side without -8 numbers end a whole step early.
    CHECK(std::fabs(restored(int4, 32, k) - wanted) <= step4 * 1.01);
  }
  double squares4 = 0, squares = 0;
  for (int64_t k = 0; k < 96; ++k) {
    squares4 += std::pow(restored(int4, 32, k) - row[static_cast<size_t>(k)], 2);
    squares += std::pow(row[static_cast<size_t>(k)], 2);
  }
  CHECK(std::sqrt(squares4 / squares) <
        0.07);  // a sixteenth of the range, uniform: 1 / (8 sqrt 12) of the largest
}

TEST_CASE("a_weight_that_no_scale_holds_is_refused_by_its_value") {
  const TensorType scales{DType::kF16, {1, 1}};
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(), 1e8f}) {
    std::vector<float> row(32, 1.0f);
    row[7] = bad;
    const HostTensor value = HostTensor::copy_of<float>({DType::kF32, {1, 32}}, row);
    CHECK(quantize_weight(value, {DType::kI8, {1, 32}}, &scales).status().code() ==
          StatusCode::kInvalidArgument);
    CHECK(quantize_weight(value, {DType::kU8, {1, 16}}, &scales).status().code() ==
          StatusCode::kInvalidArgument);
  }
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
