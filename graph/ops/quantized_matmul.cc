// quantized_matmul(x, w, bias)[..., n] = sum_k x[..., k] * W[n, k] + bias[n]: a matmul whose weight is stored
// in fewer bits than it is computed in. The weight is widened as it is read, so that a few rows (decoding)
// cost the bytes of the stored weight.
//   x [..., K] of any float type, w [N, K] bf16, f16 or a block type (graph/base/blocks/), bias [N] as x,
//   optional
//   -> y [..., N]
//   activations = "f32": products of x as it is; "q8": each row of x is rounded once to 8 bits a number (Q8_0
//   for
//     blocks of 32 and 64 elements, Q8_K for 256) and multiplied in integers, for block types except nf4; "bf16": x is
//     rounded to bf16, for weights of bf16 only.
// quantized_matmul_grad(dy, w)[..., k] = sum_n dy[..., n] * W[n, k]: its gradient for x. The weight does not
// train.
#include "graph/base/text.h"
#include "graph/ops/op_support.h"

namespace tessera {

using namespace ops;

namespace {

constexpr std::string_view kName = "quantized_matmul";

const AttrSpec kAttrs[] = {
    {.name = "activations",
     .type = AttrType::kString,
     .default_value = AttrValue(std::string("f32")),
     .meaning = "f32: x as it is; q8: its rows rounded to 8 bits, for weights of block types; bf16: rounded "
                "to that, for weights of bf16",
     .is_late = true},
};

Status check_activations(Types in, Attrs attrs) {
  const std::string& activations = attr_string(attrs, "activations");
  if (activations == "f32") return {};
  if (activations != "q8" && activations != "bf16")
    return Status(StatusCode::kInvalidArgument,
                  format("quantized_matmul: activations is '{}', wanted f32, q8 or bf16", activations));
  const bool is_q8 = activations == "q8";
  if (is_q8 ? has_integer_codes(in[1].dtype) : in[1].dtype == DType::kBF16) return {};
  return Status(StatusCode::kInvalidArgument,
                format("quantized_matmul: activations is '{}', operand 1 (w) is {}; wanted {}", activations,
                       in[1], is_q8 ? "a block type of integer codes" : "bf16"));
}

Inferred quantized_matmul_infer(Types in, Attrs attrs) {
  TSR_RETURN_IF_ERROR(check_count(kName, in, 2, 3));
  TSR_RETURN_IF_ERROR(check_float(kName, in, 0, "x"));
  TSR_RETURN_IF_ERROR(check_rank_at_least(kName, in, 0, "x", 1));
  if (!is_narrow_type(in[1].dtype))
    return Status(StatusCode::kInvalidArgument,
                  format("quantized_matmul: operand 1 (w) is {}, wanted bf16, f16 or a block type", in[1]));
  TSR_RETURN_IF_ERROR(check_activations(in, attrs));
  TSR_RETURN_IF_ERROR(check_rank(kName, in, 1, "w", 2));
  const int64_t n = in[1].shape[0];
  TSR_RETURN_IF_ERROR(check_extent(kName, in, 1, "w", 1, last_extent(in[0].shape)));
  if (in.size() == 3) {
    TSR_RETURN_IF_ERROR(check_dtype(kName, in, 2, "bias", in[0].dtype));
    TSR_RETURN_IF_ERROR(check_shape(kName, in, 2, "bias", Shape{n}));
  }
  return std::vector<TensorType>{{in[0].dtype, with_last(without_last(in[0].shape), n)}};
}

// dx = dy W, dbias = dy summed over the leading dims.
Status quantized_matmul_vjp(VjpBuilder& b) {
  const auto dy = b.output_grad(0);
  if (!dy) return {};
  if (b.needs_grad(1))
    return Status(StatusCode::kFailedPrecondition,
                  format("quantized_matmul: a weight stored as {} does not train: freeze it",
                         to_text(b.input_type(1).dtype)));
  if (const std::string& activations = attr_string(b.attrs(), "activations"); activations != "f32")
    return Status(
        StatusCode::kFailedPrecondition,
        format("quantized_matmul: there is no gradient through activations that are rounded (activations "
               "= \"{}\"): wanted \"f32\"",
               activations));
  TSR_RETURN_IF_ERROR(set_grad(b, 0, [&] { return b.emit("quantized_matmul_grad", {*dy, b.input(1)}); }));
  if (b.input_count() < 3) return {};
  return set_grad(b, 2, [&] { return b.emit("sum_leading", {*dy}); });
}

// k is split between whole blocks (`unit`). The shard that begins at 0 adds the bias, as in matmul. A row is
// rounded to 8 bits in parts of one block: shards of whole blocks round as the whole does.
ShardingRule quantized_matmul_sharding(const OpView& view) {
  const std::string leading = leading_letters(view.inputs[0].shape.rank() - 1, "kn");
  const bool has_bias = view.inputs.size() == 3;
  const bool rounds = attr_string(view.attrs, "activations") != "f32";  // then it is not linear in x
  const LinearSets linear = rounds ? LinearSets{} : has_bias ? LinearSets{{0, 2}} : LinearSets{{0}};
  return make_rule(leading + "k,nk" + (has_bias ? ",n->" : "->") + leading + "n", linear);
}

OpCost quantized_matmul_cost(const OpView& view) {
  const double y = static_cast<double>(view.outputs[0].shape.elements());
  return traffic_cost(view, y * (2 * static_cast<double>(last_extent(view.inputs[0].shape)) + 1));
}

}  // namespace

extern const OpDef kQuantizedMatmul = {
    .name = kName,
    .attrs = kAttrs,
    .infer = quantized_matmul_infer,
    .vjp = quantized_matmul_vjp,
    .sharding = quantized_matmul_sharding,
    .cost = quantized_matmul_cost,
    .former_name = "narrow_matmul",
    .weight = {.operand = 1, .stored_read = read_along_blocks, .logical_op = "matmul", .logical_trans_w = 1},
    .multiplies_matrices = true,
};

// --- quantized_matmul_grad

namespace {

constexpr std::string_view kGradName = "quantized_matmul_grad";

Inferred quantized_matmul_grad_infer(Types in, Attrs) {
  TSR_RETURN_IF_ERROR(check_count(kGradName, in, 2));
  TSR_RETURN_IF_ERROR(check_float(kGradName, in, 0, "dy"));
  TSR_RETURN_IF_ERROR(check_rank_at_least(kGradName, in, 0, "dy", 1));
  if (!is_narrow_type(in[1].dtype))
    return Status(StatusCode::kInvalidArgument,
                  format("{}: operand 1 (w) is {}, wanted bf16, f16 or a block type", kGradName, in[1]));
  TSR_RETURN_IF_ERROR(check_rank(kGradName, in, 1, "w", 2));
  TSR_RETURN_IF_ERROR(check_extent(kGradName, in, 1, "w", 0, last_extent(in[0].shape)));
  return std::vector<TensorType>{{in[0].dtype, with_last(without_last(in[0].shape), in[1].shape[1])}};
}

// g is the gradient of dx: ddy = g W^T.
Status quantized_matmul_grad_vjp(VjpBuilder& b) {
  const auto g = b.output_grad(0);
  if (!g) return {};
  return set_grad(b, 0, [&] { return b.emit(kName, {*g, b.input(1)}); });
}

ShardingRule quantized_matmul_grad_sharding(const OpView& view) {
  const std::string leading = leading_letters(view.inputs[0].shape.rank() - 1, "kn");
  return make_rule(leading + "n,nk->" + leading + "k", {{0}});
}

OpCost quantized_matmul_grad_cost(const OpView& view) {
  const double dx = static_cast<double>(view.outputs[0].shape.elements());
  return traffic_cost(view, 2 * dx * static_cast<double>(last_extent(view.inputs[0].shape)));
}

}  // namespace

extern const OpDef kQuantizedMatmulGrad = {
    .name = kGradName,
    .infer = quantized_matmul_grad_infer,
    .vjp = quantized_matmul_grad_vjp,
    .sharding = quantized_matmul_grad_sharding,
    .cost = quantized_matmul_grad_cost,
    .weight = {.operand = 1, .stored_read = read_along_blocks, .logical_op = "matmul", .logical_trans_w = 0},
    .multiplies_matrices = true,
};

}  // namespace tessera
