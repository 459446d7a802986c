// Activations and their gradients, element by element. The gradient of an activation is a separate op,
// so that one kernel reads x and dy once. tanh and sigmoid are differentiated from their result y.
#include "graph/base/text.h"
#include "graph/ops/op_support.h"

namespace tessera {

using namespace ops;

namespace {
Inferred infer_unary(std::string_view op, Types in) {
  TSR_RETURN_IF_ERROR(check_count(op, in, 1));
  TSR_RETURN_IF_ERROR(check_float(op, in, 0, "x"));
  return std::vector<TensorType>{in[0]};
}

// x (or y), dy -> dx
Inferred infer_unary_grad(std::string_view op, Types in) {
  TSR_RETURN_IF_ERROR(check_count(op, in, 2));
  TSR_RETURN_IF_ERROR(check_float(op, in, 0, "x"));
  TSR_RETURN_IF_ERROR(check_same_type(op, in, 0, 1));
  return std::vector<TensorType>{in[0]};
}

// dx = <op>_grad(x, dy), or <op>_grad(y, dy) where `from_result`.
Status unary_vjp(VjpBuilder& b, std::string_view grad_op, bool from_result) {
  const auto dy = b.output_grad(0);
  if (!dy) return {};
  const TensorId at = from_result ? b.output(0) : b.input(0);
  return set_grad(b, 0, [&] { return b.emit(grad_op, {at, *dy}, {b.attrs().begin(), b.attrs().end()}); });
}

ShardingRule nonlinear_sharding(const OpView& view) { return pointwise_rule(view); }
ShardingRule grad_sharding(const OpView& view) { return pointwise_rule(view, {{1}}); }
}  // namespace

// --- relu: y = max(x, 0); dx = dy where x > 0

extern const OpDef kRelu = {
    .name = "relu",
    .infer = [](Types in, Attrs) { return infer_unary("relu", in); },
    .vjp = [](VjpBuilder& b) { return unary_vjp(b, "relu_grad", false); },
    .sharding = nonlinear_sharding,
    .cost = elementwise_cost<1>,
    .in_place = kInPlaceFirst,
    .is_activation = true,
};

extern const OpDef kReluGrad = {
    .name = "relu_grad",
    .infer = [](Types in, Attrs) { return infer_unary_grad("relu_grad", in); },
    .sharding = grad_sharding,
    .cost = elementwise_cost<1>,
    .in_place = kInPlaceFirst,
};

// --- gelu: y = x * Phi(x), Phi the normal distribution function, or with approximate = "tanh"
//     y = x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3))), the form of GPT-2

namespace {
const AttrSpec kGeluAttrs[] = {
    {"approximate", AttrType::kString, AttrValue(std::string("tanh")),
     "tanh, or none for the exact form (erf)"},
};

Status check_approximate(std::string_view op, Attrs attrs) {
  const std::string& approximate = attr_string(attrs, "approximate");
  if (approximate == "tanh" || approximate == "none") return {};
  return Status(StatusCode::kInvalidArgument,
                format("{}: approximate is '{}', wanted 'tanh' or 'none'", op, approximate));
}

Inferred gelu_infer(Types in, Attrs attrs) {
  TSR_RETURN_IF_ERROR(check_approximate("gelu", attrs));
  return infer_unary("gelu", in);
}

Inferred gelu_grad_infer(Types in, Attrs attrs) {
  TSR_RETURN_IF_ERROR(check_approximate("gelu_grad", attrs));
  return infer_unary_grad("gelu_grad", in);
}
}  // namespace

extern const OpDef kGelu = {
    .name = "gelu",
    .attrs = kGeluAttrs,
    .infer = gelu_infer,
    .vjp = [](VjpBuilder& b) { return unary_vjp(b, "gelu_grad", false); },
    .sharding = nonlinear_sharding,
    .cost = elementwise_cost<14>,
    .in_place = kInPlaceFirst,
    .is_activation = true,
};

extern const OpDef kGeluGrad = {
    .name = "gelu_grad",
    .attrs = kGeluAttrs,
    .infer = gelu_grad_infer,
    .sharding = grad_sharding,
    .cost = elementwise_cost<22>,
    .in_place = kInPlaceFirst,
    .fused = {.with_product = "matmul_gelu_grad"},
};

// --- silu: y = x * sigmoid(x); dx = dy * s * (1 + x * (1 - s)), s = sigmoid(x)

extern const OpDef kSilu = {
    .name = "silu",
    .infer = [](Types in, Attrs) { return infer_unary("silu", in); },
    .vjp = [](VjpBuilder& b) { return unary_vjp(b, "silu_grad", false); },
    .sharding = nonlinear_sharding,
    .cost = elementwise_cost<8>,
    .in_place = kInPlaceFirst,
    .is_activation = true,
};

extern const OpDef kSiluGrad = {
    .name = "silu_grad",
    .infer = [](Types in, Attrs) { return infer_unary_grad("silu_grad", in); },
    .sharding = grad_sharding,
    .cost = elementwise_cost<12>,
    .in_place = kInPlaceFirst,
};

// --- quick_gelu: y = x * sigmoid(1.702 x); dx = dy * s * (1 + 1.702 x * (1 - s)), s = sigmoid(1.702 x)

extern const OpDef kQuickGelu = {
    .name = "quick_gelu",
    .infer = [](Types in, Attrs) { return infer_unary("quick_gelu", in); },
    .vjp = [](VjpBuilder& b) { return unary_vjp(b, "quick_gelu_grad", false); },
    .sharding = nonlinear_sharding,
    .cost = elementwise_cost<9>,
    .in_place = kInPlaceFirst,
};

extern const OpDef kQuickGeluGrad = {
    .name = "quick_gelu_grad",
    .infer = [](Types in, Attrs) { return infer_unary_grad("quick_gelu_grad", in); },
    .sharding = grad_sharding,
    .cost = elementwise_cost<13>,
    .in_place = kInPlaceFirst,
};

// --- tanh: dx = dy * (1 - y^2)

extern const OpDef kTanh = {
    .name = "tanh",
    .infer = [](Types in, Attrs) { return infer_unary("tanh", in); },
    .vjp = [](VjpBuilder& b) { return unary_vjp(b, "tanh_grad", true); },
    .sharding = nonlinear_sharding,
    .cost = elementwise_cost<8>,
    .in_place = kInPlaceFirst,
};

extern const OpDef kTanhGrad = {
    .name = "tanh_grad",
    .infer = [](Types in, Attrs) { return infer_unary_grad("tanh_grad", in); },
    .sharding = grad_sharding,
    .cost = elementwise_cost<3>,
    .in_place = kInPlaceFirst,
};

// --- sigmoid: y = 1 / (1 + exp(-x)); dx = dy * y * (1 - y)

extern const OpDef kSigmoid = {
    .name = "sigmoid",
    .infer = [](Types in, Attrs) { return infer_unary("sigmoid", in); },
    .vjp = [](VjpBuilder& b) { return unary_vjp(b, "sigmoid_grad", true); },
    .sharding = nonlinear_sharding,
    .cost = elementwise_cost<7>,
    .in_place = kInPlaceFirst,
};

extern const OpDef kSigmoidGrad = {
    .name = "sigmoid_grad",
    .infer = [](Types in, Attrs) { return infer_unary_grad("sigmoid_grad", in); },
    .sharding = grad_sharding,
    .cost = elementwise_cost<3>,
    .in_place = kInPlaceFirst,
};

}  // namespace tessera
