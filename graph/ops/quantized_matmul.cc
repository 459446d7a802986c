// quantized_matmul(x, w, scale, bias)[..., n] = sum_k x[..., k] * W[n, k] + bias[n]: a matmul whose weight is
// stored in fewer bits than it is computed in. It is widened as it is read, so that a few rows (decoding)
// cost the bytes of the stored weight.
//   x [..., K] of any float type, bias [N] of it optional -> y [..., N]
//   w [N, K] bf16 or f16: W = w, there is no scale
//   w [N, K] i8, scale [N, G] f16: W[n, k] = w[n, k] * scale[n, k / (K / G)]
//   w [N, K / 2] u8, two numbers of 4 bits a byte, scale [N, G] f16: of every 32 numbers byte i of 16 holds
//     number i in its low half and number 16 + i in its high half, both with 8 added; K / G is a multiple
//     of 32.
// Integer weights do not train: there is no gradient.
#include "graph/base/text.h"
#include "graph/ops/op_support.h"

namespace tessera {

using namespace ops;

namespace {

constexpr std::string_view kName = "quantized_matmul";
constexpr int64_t kPackedUnit = 32;  // numbers of 4 bits that share 16 bytes

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

Inferred quantized_matmul_infer(Types in, Attrs) {
  const bool scaled = has_scale(in);
  TSR_RETURN_IF_ERROR(check_count(kName, in, scaled ? 3 : 2, scaled ? 4 : 3));
  TSR_RETURN_IF_ERROR(check_float(kName, in, 0, "x"));
  TSR_RETURN_IF_ERROR(check_rank_at_least(kName, in, 0, "x", 1));
  const DType w = in[1].dtype;
  if (w != DType::kBF16 && w != DType::kF16 && !scaled)
    return Status(
        StatusCode::kInvalidArgument,
        format("quantized_matmul: operand 1 (w) is {}, wanted bf16, f16, i8 or u8 (two numbers a byte)",
               in[1]));
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

// k is split between groups (g), never inside one (u, or v in bytes). The shard that begins at 0 adds the
// bias, as in matmul.
ShardingRule quantized_matmul_sharding(const OpView& view) {
  const std::string leading = leading_letters(view.inputs[0].shape.rank() - 1, "knguv");
  const bool scaled = has_scale(view.inputs);
  const int bias = scaled ? 3 : 2;
  const bool has_bias = static_cast<int>(view.inputs.size()) > bias;
  const LinearSets linear = has_bias ? LinearSets{{0, bias}} : LinearSets{{0}};
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
    .infer = quantized_matmul_infer,
    .sharding = quantized_matmul_sharding,
    .cost = quantized_matmul_cost,
    .former_name = "narrow_matmul",
};

}  // namespace tessera
