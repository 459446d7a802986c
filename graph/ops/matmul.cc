// matmul(x, w, bias)[..., n] = act(sum_k x[..., k] * w[k, n] + bias[n]).
//   x [..., K], w [K, N] ([N, K] when trans_w = 1), bias [N] optional -> y [..., N]
//   with an activation a second result, pre [..., N], is the value before it.
// matmul_weight_grad(x, dy)[k, n] = sum over the leading dims of x[..., k] * dy[..., n] ([n, k] when trans_w
// = 1).
#include <algorithm>

#include "graph/base/text.h"
#include "graph/ops/op_support.h"

namespace tessera {

using namespace ops;

// --- matmul

namespace {
const AttrSpec kMatmulAttrs[] = {
    {"trans_w", AttrType::kI64, AttrValue(int64_t{0}), "1: w is stored [N, K]"},
    {"activation", AttrType::kString, AttrValue(std::string("none")),
     "none, relu, gelu (the tanh form), silu; adds the result before it as a second output"},
    allow_tf32_spec(),
};

bool has_activation(Attrs attrs) { return attr_string(attrs, "activation") != "none"; }

Inferred matmul_infer(Types in, Attrs attrs) {
  TSR_RETURN_IF_ERROR(check_count("matmul", in, 2, 3));
  TSR_RETURN_IF_ERROR(check_flag("matmul", attrs, "allow_tf32"));
  TSR_RETURN_IF_ERROR(check_float("matmul", in, 0, "x"));
  TSR_RETURN_IF_ERROR(check_dtype("matmul", in, 1, "w", in[0].dtype));
  TSR_ASSIGN_OR_RETURN(const Shape shape, matmul_shape("matmul", in, attrs));
  if (in.size() == 3) {
    TSR_RETURN_IF_ERROR(check_dtype("matmul", in, 2, "bias", in[0].dtype));
    TSR_RETURN_IF_ERROR(check_shape("matmul", in, 2, "bias", Shape{last_extent(shape)}));
  }
  const std::string& activation = attr_string(attrs, "activation");
  const OpDef* applied = find_op(activation);
  if (activation != "none" && (applied == nullptr || !applied->is_activation)) {
    std::vector<std::string> known = {"none"};
    for (const OpDef* op : all_ops())
      if (op->is_activation) known.emplace_back(op->name);
    return Status(StatusCode::kInvalidArgument,
                  format("matmul: activation is '{}', wanted one of {}", activation, join(known, ", ")));
  }
  const TensorType y{in[0].dtype, shape};
  return has_activation(attrs) ? std::vector<TensorType>{y, y} : std::vector<TensorType>{y};
}

// The gradient before the activation; nullopt when neither result is used.
Result<std::optional<TensorId>> pre_activation_grad(VjpBuilder& b) {
  if (!has_activation(b.attrs())) return b.output_grad(0);
  std::optional<TensorId> dpre = b.output_grad(1);
  if (const auto dy = b.output_grad(0)) {
    const std::string& activation = attr_string(b.attrs(), "activation");
    TSR_ASSIGN_OR_RETURN(const TensorId through, b.emit(activation + "_grad", {b.output(1), *dy}));
    if (!dpre) return std::optional(through);
    TSR_ASSIGN_OR_RETURN(dpre, b.emit("add", {*dpre, through}));
  }
  return dpre;
}

// dx = dy w^T, dw = x^T dy, dbias = dy summed over the leading dims.
Status matmul_vjp(VjpBuilder& b) {
  TSR_ASSIGN_OR_RETURN(const std::optional<TensorId> dpre, pre_activation_grad(b));
  if (!dpre) return {};
  const int64_t trans = attr_i64(b.attrs(), "trans_w");
  const Attr tf32 = allow_tf32_as(b.attrs());
  TSR_RETURN_IF_ERROR(set_grad(b, 0, [&] {
    return b.emit("matmul", {*dpre, b.input(1)}, {{"trans_w", 1 - trans}, tf32});
  }));
  TSR_RETURN_IF_ERROR(set_grad(b, 1, [&] {
    return b.emit("matmul_weight_grad", {b.input(0), *dpre}, {{"trans_w", trans}, tf32});
  }));
  if (b.input_count() < 3) return {};
  return set_grad(b, 2, [&] { return b.emit("sum_leading", {*dpre}); });
}

// A shard of k makes an addend of y. The bias belongs to one addend only: the kernel adds it where k begins
// at 0. With an activation k must be whole.
ShardingRule matmul_sharding(const OpView& view) {
  const std::string leading = leading_letters(view.inputs[0].shape.rank() - 1, "kn");
  const bool bias = view.inputs.size() == 3, activation = has_activation(view.attrs);
  const std::string y = leading + "n";
  const std::string text = leading + "k," + (attr_i64(view.attrs, "trans_w") == 1 ? "nk" : "kn") +
                           (bias ? ",n" : "") + "->" + y + (activation ? "," + y : "");
  if (activation) return make_rule(text, {}, "k");
  return make_rule(text, bias ? LinearSets{{0, 2}, {1, 2}} : LinearSets{{0}, {1}});
}

OpCost matmul_cost(const OpView& view) {
  const double y = static_cast<double>(view.outputs[0].shape.elements());
  const double k = static_cast<double>(last_extent(view.inputs[0].shape));
  const double extra = (view.inputs.size() == 3 ? 1 : 0) + (has_activation(view.attrs) ? 8 : 0);
  return traffic_cost(view, y * (2 * k + extra));
}
// Against its rows, stored blocks are read only as a backward pass does: without bias and activation.
StoredRead matmul_stored_read(size_t operand_count, Attrs attrs) {
  if (attr_i64(attrs, "trans_w") == 1) return StoredRead::kWanted;
  return operand_count == 2 && !has_activation(attrs) ? StoredRead::kAllowed : StoredRead::kRefused;
}
std::string_view matmul_stored_op(Attrs attrs) {
  return attr_i64(attrs, "trans_w") == 1 ? "quantized_matmul" : "quantized_matmul_grad";
}
}  // namespace

extern const OpDef kMatmul = {
    .name = "matmul",
    .attrs = kMatmulAttrs,
    .infer = matmul_infer,
    .vjp = matmul_vjp,
    .sharding = matmul_sharding,
    .cost = matmul_cost,
    .weight = {.operand = 1,
               .use = WeightUse::kProduct,
               .stored_read = matmul_stored_read,
               .stored_op = matmul_stored_op},
    .fused = {.with_addend = "matmul_add"},
    .multiplies_matrices = true,
    .scaled_op = "scaled_matmul",
};

// --- matmul_weight_grad

namespace {
const AttrSpec kWeightGradAttrs[] = {
    {"trans_w", AttrType::kI64, AttrValue(int64_t{0}), "1: the result is stored [N, K]"},
    allow_tf32_spec(),
    kWideSums,
};

Inferred weight_grad_infer(Types in, Attrs attrs) {
  TSR_RETURN_IF_ERROR(check_count("matmul_weight_grad", in, 2));
  TSR_RETURN_IF_ERROR(check_flag("matmul_weight_grad", attrs, "allow_tf32"));
  TSR_RETURN_IF_ERROR(check_float("matmul_weight_grad", in, 0, "x"));
  TSR_RETURN_IF_ERROR(check_dtype("matmul_weight_grad", in, 1, "dy", in[0].dtype));
  TSR_ASSIGN_OR_RETURN(const Shape dw, weight_grad_shape("matmul_weight_grad", in, attrs));
  return std::vector<TensorType>{{sums_dtype(in[0].dtype, attrs), dw}};
}

// g is the gradient of dw: dx = dy g^T, ddy = x g.
Status weight_grad_vjp(VjpBuilder& b) {
  auto g = b.output_grad(0);
  if (!g) return {};
  TSR_ASSIGN_OR_RETURN(g, narrow_sums_grad(b, *g));
  const int64_t trans = attr_i64(b.attrs(), "trans_w");
  const Attr tf32 = allow_tf32_as(b.attrs());
  TSR_RETURN_IF_ERROR(set_grad(b, 0, [&] {
    return b.emit("matmul", {b.input(1), *g}, {{"trans_w", 1 - trans}, tf32});
  }));
  return set_grad(b, 1, [&] { return b.emit("matmul", {b.input(0), *g}, {{"trans_w", trans}, tf32}); });
}

ShardingRule weight_grad_sharding(const OpView& view) {
  const std::string leading = leading_letters(view.inputs[0].shape.rank() - 1, "kn");
  const std::string dw = attr_i64(view.attrs, "trans_w") == 1 ? "nk" : "kn";
  return make_rule(leading + "k," + leading + "n->" + dw, {{0}, {1}});
}

OpCost weight_grad_cost(const OpView& view) {
  const double x = static_cast<double>(view.inputs[0].shape.elements());
  return traffic_cost(view, 2 * x * static_cast<double>(last_extent(view.inputs[1].shape)));
}
}  // namespace

extern const OpDef kMatmulWeightGrad = {
    .name = "matmul_weight_grad",
    .attrs = kWeightGradAttrs,
    .infer = weight_grad_infer,
    .vjp = weight_grad_vjp,
    .sharding = weight_grad_sharding,
    .cost = weight_grad_cost,
    .multiplies_matrices = true,
    .scaled_op = "scaled_matmul_weight_grad",
};

}  // namespace tessera
