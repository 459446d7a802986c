// scaled_matmul: matmuls of 8-bit floats; each operand is codes and the scale of its tensor
// (graph/ops/quantize.cc). Codes are multiplied exactly and summed wide; both scales follow the sum. Operands
// may have different formats: forward multiplies e4m3 by e4m3, gradients are e5m2.
// graph/transform/precision.h makes them from matmul and its gradients.
#include "graph/base/fp8.h"
#include "graph/base/text.h"
#include "graph/ops/op_support.h"

namespace tessera {

using namespace ops;

namespace {
Status check_codes(std::string_view op, Types in, int i, std::string_view name) {
  const TensorType& type = in[static_cast<size_t>(i)];
  if (is_fp8(type.dtype)) return {};
  return Status(StatusCode::kInvalidArgument,
                format("{}: operand {} ({}) is {}, wanted e4m3 or e5m2", op, i, name, type));
}

// Operands 2 and 3: the scales of 0 and 1.
Status check_scales(std::string_view op, Types in) {
  const DType dtype = in[2].dtype == DType::kF64 ? DType::kF64 : DType::kF32;
  for (const int i : {2, 3}) {
    const std::string_view name = i == 2 ? "scale of operand 0" : "scale of operand 1";
    TSR_RETURN_IF_ERROR(check_dtype(op, in, i, name, dtype));
    TSR_RETURN_IF_ERROR(check_shape(op, in, i, name, Shape{}));
  }
  return {};
}
}  // namespace

// --- scaled_matmul(x, w, x_scale, w_scale, bias)[..., n]
//     = x_scale * w_scale * sum_k x[..., k] * w[k, n] + bias[n]
//     x [..., K], w [K, N] ([N, K] when trans_w = 1), both e4m3 or e5m2, scales [], bias [N] optional -> y
//     [..., N]

namespace {
const AttrSpec kMatmulAttrs[] = {
    {"trans_w", AttrType::kI64, AttrValue(int64_t{0}), "1: w is stored [N, K]"},
    {"dtype", AttrType::kString, AttrValue(std::string()),
     "of the result: bf16 or f16; nothing: the type of the scales"},
};

Result<DType> result_dtype(Types in, Attrs attrs) {
  const std::string& name = attr_string(attrs, "dtype");
  if (name.empty()) return in[2].dtype;
  const std::optional<DType> dtype = dtype_from_name(name);
  if (dtype == DType::kBF16 || dtype == DType::kF16) return *dtype;
  return Status(StatusCode::kInvalidArgument,
                format("scaled_matmul: dtype is '{}', wanted bf16, f16 or nothing", name));
}

Inferred matmul_infer(Types in, Attrs attrs) {
  constexpr std::string_view kName = "scaled_matmul";
  TSR_RETURN_IF_ERROR(check_count(kName, in, 4, 5));
  TSR_RETURN_IF_ERROR(check_codes(kName, in, 0, "x"));
  TSR_RETURN_IF_ERROR(check_codes(kName, in, 1, "w"));
  TSR_RETURN_IF_ERROR(check_scales(kName, in));
  TSR_ASSIGN_OR_RETURN(const DType dtype, result_dtype(in, attrs));
  TSR_ASSIGN_OR_RETURN(const Shape y, matmul_shape(kName, in, attrs));
  if (in.size() == 5) {
    TSR_RETURN_IF_ERROR(check_dtype(kName, in, 4, "bias", dtype));
    TSR_RETURN_IF_ERROR(check_shape(kName, in, 4, "bias", Shape{last_extent(y)}));
  }
  return std::vector<TensorType>{{dtype, y}};
}

// A shard of k makes an addend of y: scales are those of whole tensors. The shard that begins at 0 adds the
// bias. Codes cannot be partial sums, so no set of operands is linear.
ShardingRule matmul_sharding(const OpView& view) {
  const std::string leading = leading_letters(view.inputs[0].shape.rank() - 1, "kn");
  const std::string w = attr_i64(view.attrs, "trans_w") == 1 ? "nk" : "kn";
  return make_rule(leading + "k," + w + ",," + (view.inputs.size() == 5 ? ",n" : "") + "->" + leading + "n");
}

OpCost matmul_cost(const OpView& view) {
  const double y = static_cast<double>(view.outputs[0].shape.elements());
  const double k = static_cast<double>(last_extent(view.inputs[0].shape));
  return traffic_cost(view, y * (2 * k + (view.inputs.size() == 5 ? 2 : 1)));
}
}  // namespace

extern const OpDef kScaledMatmul = {
    .name = "scaled_matmul",
    .attrs = kMatmulAttrs,
    .infer = matmul_infer,
    .sharding = matmul_sharding,
    .cost = matmul_cost,
    .weight = {.operand = 1},
    .multiplies_matrices = true,
};

// --- scaled_matmul_weight_grad(x, dy, x_scale, dy_scale)[k, n]
//     = x_scale * dy_scale * sum over the leading dims of x[..., k] * dy[..., n]
//     x [..., K], dy [..., N], both e4m3 or e5m2, scales [] -> dw [K, N] ([N, K] when trans_w = 1), as the
//     scales

namespace {
const AttrSpec kWeightGradAttrs[] = {
    {"trans_w", AttrType::kI64, AttrValue(int64_t{0}), "1: the result is stored [N, K]"},
};

Inferred weight_grad_infer(Types in, Attrs attrs) {
  constexpr std::string_view kName = "scaled_matmul_weight_grad";
  TSR_RETURN_IF_ERROR(check_count(kName, in, 4));
  for (const int i : {0, 1}) TSR_RETURN_IF_ERROR(check_codes(kName, in, i, i ? "dy" : "x"));
  TSR_RETURN_IF_ERROR(check_scales(kName, in));
  TSR_ASSIGN_OR_RETURN(const Shape dw, weight_grad_shape(kName, in, attrs));
  return std::vector<TensorType>{{in[2].dtype, dw}};
}

ShardingRule weight_grad_sharding(const OpView& view) {
  const std::string leading = leading_letters(view.inputs[0].shape.rank() - 1, "kn");
  const std::string dw = attr_i64(view.attrs, "trans_w") == 1 ? "nk" : "kn";
  return make_rule(leading + "k," + leading + "n,,->" + dw);
}

OpCost weight_grad_cost(const OpView& view) {
  const double x = static_cast<double>(view.inputs[0].shape.elements());
  const double dw = static_cast<double>(view.outputs[0].shape.elements());
  return traffic_cost(view, 2 * x * static_cast<double>(last_extent(view.inputs[1].shape)) + dw);
}
}  // namespace

extern const OpDef kScaledMatmulWeightGrad = {
    .name = "scaled_matmul_weight_grad",
    .attrs = kWeightGradAttrs,
    .infer = weight_grad_infer,
    .sharding = weight_grad_sharding,
    .cost = weight_grad_cost,
    .multiplies_matrices = true,
};

}  // namespace tessera
