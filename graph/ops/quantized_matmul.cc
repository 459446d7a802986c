// quantized_matmul(x, w, bias)[..., n] = sum_k x[..., k] * W[n, k] + bias[n]: a matmul whose weight is stored
// in fewer bits than it is computed in. The weight is widened as it is read, so that a few rows (decoding)
// cost the bytes of the stored weight.
//   x [..., K] of any float type, w [N, K] bf16, f16 or a block type (graph/base/blocks/), bias [N] as x,
//   optional
//   -> y [..., N]
//   activations = "f32": products of x as it is; "q8": each row of x is rounded once to 8 bits a number (Q8_0
//   for
//     blocks of 32 and 64 elements, Q8_K for 256) and multiplied in integers. For block types only.
// quantized_matmul_grad(dy, w)[..., k] = sum_n dy[..., n] * W[n, k]: its gradient for x. The weight does not
// train.
//
// Two more forms of the weight have scales as operand 2, before the bias:
//   w [N, K] i8, scale [N, G] f16: W[n, k] = w[n, k] * scale[n, k / (K / G)]
//   w [N, K / 2] u8, two numbers of 4 bits a byte, scale [N, G] f16: of every 32 numbers byte i of 16 holds
//     number i in its low half and number 16 + i in its high half, both with 8 added; K / G is a multiple
//     of 32.
#include "graph/base/text.h"
#include "graph/ops/op_support.h"

namespace tessera {

using namespace ops;

namespace {

constexpr std::string_view kName = "quantized_matmul";
constexpr int64_t kPackedUnit = 32;  // numbers of 4 bits that share 16 bytes

const AttrSpec kAttrs[] = {
    {.name = "activations",
     .type = AttrType::kString,
     .default_value = AttrValue(std::string("f32")),
     .meaning = "f32: x as it is; q8: its rows rounded to 8 bits, for weights of block types",
     .is_late = true},
};

bool has_scale(Types in) { return in.size() > 1 && (in[1].dtype == DType::kI8 || in[1].dtype == DType::kU8); }

Status check_groups(Types in, int64_t k) {
  const bool packed = in[1].dtype == DType::kU8;
  const int64_t groups = in[2].shape[1], unit = packed ? kPackedUnit : 1;
  if (k == 0 && groups == 0) return {};  // an empty shard
  if (k > 0 && groups > 0 && k % groups == 0 && k / groups % unit == 0) return {};
  return Status(
      StatusCode::kInvalidArgument,
      format("quantized_matmul: operand 2 (scale) is {}: {} numbers in {} groups, wanted equal groups of a "
             "multiple of {}",
             in[2], k, groups, unit));
}

Status check_activations(Types in, Attrs attrs) {
  const std::string& activations = attr_string(attrs, "activations");
  if (activations == "f32") return {};
  if (activations != "q8")
    return Status(StatusCode::kInvalidArgument,
                  format("quantized_matmul: activations is '{}', wanted f32 or q8", activations));
  if (is_block_type(in[1].dtype)) return {};
  return Status(
      StatusCode::kInvalidArgument,
      format("quantized_matmul: activations is 'q8', operand 1 (w) is {}; wanted a block type", in[1]));
}

Inferred quantized_matmul_infer(Types in, Attrs attrs) {
  const bool scaled = has_scale(in);
  TSR_RETURN_IF_ERROR(check_count(kName, in, scaled ? 3 : 2, scaled ? 4 : 3));
  TSR_RETURN_IF_ERROR(check_float(kName, in, 0, "x"));
  TSR_RETURN_IF_ERROR(check_rank_at_least(kName, in, 0, "x", 1));
  const DType w = in[1].dtype;
  if (!is_narrow_type(w) && !scaled)
    return Status(
        StatusCode::kInvalidArgument,
        format(
            "quantized_matmul: operand 1 (w) is {}, wanted bf16, f16, a block type, or i8 or u8 with scales",
            in[1]));
  TSR_RETURN_IF_ERROR(check_activations(in, attrs));
  TSR_RETURN_IF_ERROR(check_rank(kName, in, 1, "w", 2));
  const int64_t k = last_extent(in[0].shape), n = in[1].shape[0];
  if (scaled && (is_symbol(k) || k % 2 != 0) && w == DType::kU8)
    return Status(
        StatusCode::kInvalidArgument,
        format("quantized_matmul: operand 0 (x) is {}, wanted an even last extent for numbers of 4 bits",
               in[0]));
  TSR_RETURN_IF_ERROR(check_extent(kName, in, 1, "w", 1, w == DType::kU8 ? k / 2 : k));
  if (scaled) {
    TSR_RETURN_IF_ERROR(check_dtype(kName, in, 2, "scale", DType::kF16));
    TSR_RETURN_IF_ERROR(check_rank(kName, in, 2, "scale", 2));
    TSR_RETURN_IF_ERROR(check_extent(kName, in, 2, "scale", 0, n));
    TSR_RETURN_IF_ERROR(check_groups(in, k));
  }
  const int bias = scaled ? 3 : 2;
  if (static_cast<int>(in.size()) > bias) {
    TSR_RETURN_IF_ERROR(check_dtype(kName, in, bias, "bias", in[0].dtype));
    TSR_RETURN_IF_ERROR(check_shape(kName, in, bias, "bias", Shape{n}));
  }
  return std::vector<TensorType>{{in[0].dtype, with_last(without_last(in[0].shape), n)}};
}

// dx = dy W, dbias = dy summed over the leading dims.
Status quantized_matmul_vjp(VjpBuilder& b) {
  const auto dy = b.output_grad(0);
  if (!dy) return {};
  const DType w = b.input_type(1).dtype;
  if (b.needs_grad(1))
    return Status(StatusCode::kFailedPrecondition,
                  format("quantized_matmul: a weight stored as {} does not train: freeze it", to_text(w)));
  if (attr_string(b.attrs(), "activations") == "q8")
    return Status(
        StatusCode::kFailedPrecondition,
        "quantized_matmul: there is no gradient through activations that are rounded to 8 bits (activations "
        "= \"q8\"): wanted \"f32\"");
  if (!is_narrow_type(w))
    return Status(
        StatusCode::kFailedPrecondition,
        format("quantized_matmul: there is no gradient through a weight of {} with scales", to_text(w)));
  TSR_RETURN_IF_ERROR(set_grad(b, 0, [&] { return b.emit("quantized_matmul_grad", {*dy, b.input(1)}); }));
  if (b.input_count() < 3) return {};
  return set_grad(b, 2, [&] { return b.emit("sum_leading", {*dy}); });
}

// k is split between groups (g), never inside one (u, or v in bytes), and between whole blocks (`unit`). The
// shard that begins at 0 adds the bias, as in matmul. A row is rounded to 8 bits in parts of one block:
// shards of whole blocks round as the whole does.
ShardingRule quantized_matmul_sharding(const OpView& view) {
  const std::string leading = leading_letters(view.inputs[0].shape.rank() - 1, "knguv");
  const bool scaled = has_scale(view.inputs);
  const int bias = scaled ? 3 : 2;
  const bool has_bias = static_cast<int>(view.inputs.size()) > bias;
  const bool rounds = attr_string(view.attrs, "activations") == "q8";  // then it is not linear in x
  const LinearSets linear = rounds ? LinearSets{} : has_bias ? LinearSets{{0, bias}} : LinearSets{{0}};
  const std::string end = (has_bias ? ",n->" : "->") + leading + "n";
  if (!scaled) return make_rule(leading + "k,nk" + end, linear);
  if (view.inputs[1].dtype == DType::kI8) return make_rule(leading + "(gu),n(gu),ng" + end, linear, "u");
  return make_rule(leading + "(gu),n(gv),ng" + end, linear, "uv");
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
};

}  // namespace tessera
