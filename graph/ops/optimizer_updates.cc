// One optimizer step of one parameter. Element by element, so any sharding of parameter and state will do
// (ZeRO).
//   lr, step, gscale are scalars (f64 in an f64 graph, else f32), as are the elements of the state tensors.
//   gscale, when given, multiplies the gradient; gscale = 0 leaves parameter and state exactly as they are,
//   which is how a step whose gradient is not finite is skipped.
#include "graph/base/text.h"
#include "graph/ops/op_support.h"

namespace tessera {

using namespace ops;

namespace {
// p, g of one float type; `states` tensors after them of p's shape; then scalars.
Status check_update(std::string_view op, Types in, int states, int scalars) {
  TSR_RETURN_IF_ERROR(check_count(op, in, 2 + states + scalars, 2 + states + scalars + 1));
  TSR_RETURN_IF_ERROR(check_float(op, in, 0, "parameter"));
  TSR_RETURN_IF_ERROR(check_same_type(op, in, 0, 1));
  const DType wide = statistics_dtype(in[0].dtype);
  for (int i = 2; i < static_cast<int>(in.size()); ++i) {
    const bool state = i < 2 + states;
    TSR_RETURN_IF_ERROR(check_dtype(op, in, i, state ? "state" : "scalar", wide));
    TSR_RETURN_IF_ERROR(check_shape(op, in, i, state ? "state" : "scalar", state ? in[0].shape : Shape{}));
  }
  return {};
}

Status check_range(std::string_view op, Attrs attrs, std::string_view name, double least, double below) {
  const double value = attr_f64(attrs, name);
  if (value >= least && value < below) return {};
  return Status(StatusCode::kInvalidArgument,
                format("{}: {} is {}, wanted {} <= {} < {}", op, name, value, least, name, below));
}
constexpr double kUnbounded = 1e300;
}  // namespace

// --- adamw_update (Loshchilov and Hutter, "Decoupled weight decay regularization", ICLR 2019)
// --------------------
//   p, g, m, v, lr, step (1 for the first), gscale optional -> p, m, v
//   m = beta1 m + (1 - beta1) g,  v = beta2 v + (1 - beta2) g^2
//   p = p - lr (m / (1 - beta1^step) / (sqrt(v / (1 - beta2^step)) + eps) + weight_decay p)

namespace {
const AttrSpec kAdamwAttrs[] = {
    {"beta1", AttrType::kF64, AttrValue(0.9), "decay of the mean of gradients"},
    {"beta2", AttrType::kF64, AttrValue(0.999), "decay of the mean of squared gradients"},
    {"eps", AttrType::kF64, AttrValue(1e-8), "added to the root of the second moment"},
    {"weight_decay", AttrType::kF64, AttrValue(0.01), "decoupled; times lr"},
};

Inferred adamw_infer(Types in, Attrs attrs) {
  TSR_RETURN_IF_ERROR(check_update("adamw_update", in, 2, 2));
  TSR_RETURN_IF_ERROR(check_range("adamw_update", attrs, "beta1", 0, 1));
  TSR_RETURN_IF_ERROR(check_range("adamw_update", attrs, "beta2", 0, 1));
  TSR_RETURN_IF_ERROR(check_range("adamw_update", attrs, "eps", 0, kUnbounded));
  TSR_RETURN_IF_ERROR(check_range("adamw_update", attrs, "weight_decay", 0, kUnbounded));
  return std::vector<TensorType>{in[0], in[2], in[3]};
}

constexpr int kAdamwInPlace[] = {0, 2, 3};
}  // namespace

extern const OpDef kAdamwUpdate = {
    .name = "adamw_update",
    .attrs = kAdamwAttrs,
    .infer = adamw_infer,
    .sharding = [](const OpView& v) { return pointwise_rule(v); },
    .cost = elementwise_cost<17>,
    .in_place = kAdamwInPlace,
};

// --- sgd_update
// --------------------------------------------------------------------------------------------------
//   p, g, buf, lr, gscale optional -> p, buf
//   buf = momentum buf + g + weight_decay p,  p = p - lr buf

namespace {
const AttrSpec kSgdAttrs[] = {
    {"momentum", AttrType::kF64, AttrValue(0.9), "share of the last step kept"},
    {"weight_decay", AttrType::kF64, AttrValue(0.0), "added to the gradient, times the parameter"},
};

Inferred sgd_infer(Types in, Attrs attrs) {
  TSR_RETURN_IF_ERROR(check_update("sgd_update", in, 1, 1));
  TSR_RETURN_IF_ERROR(check_range("sgd_update", attrs, "momentum", 0, 1));
  TSR_RETURN_IF_ERROR(check_range("sgd_update", attrs, "weight_decay", 0, kUnbounded));
  return std::vector<TensorType>{in[0], in[2]};
}

constexpr int kSgdInPlace[] = {0, 2};
}  // namespace

extern const OpDef kSgdUpdate = {
    .name = "sgd_update",
    .attrs = kSgdAttrs,
    .infer = sgd_infer,
    .sharding = [](const OpView& v) { return pointwise_rule(v); },
    .cost = elementwise_cost<6>,
    .in_place = kSgdInPlace,
};

}  // namespace tessera
