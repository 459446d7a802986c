// Updates: one optimizer step of one parameter. Element-wise, so any sharding of parameter and state is valid
// (ZeRO).
//   lr (times the attribute lr_scale), step, gscale are scalars (f64 in an f64 graph, else f32), as are the elements of the state tensors.
//   Settings of one step, f64 [] each in the order of the attributes, may follow gscale: all or none. They take the place of
//   the attributes of the same names, except weight_decay where fixed_decay is 1. In f64 they have the bits of attributes.
//   gscale, when given, multiplies the gradient. gscale = 0 leaves parameter and state exactly as they are,
//   so that a step whose gradient is not finite changes nothing. Stochastic updates keep a bf16 parameter
//   without a wider copy. The new value (in the type of gradient and state, then f32) is between two
//   neighbours in bf16 and becomes the upper one with the probability that makes the expectation the value
//   itself: 16 random bits are added below the last bit that is kept, and the rest is dropped. The bits are
//   those of Philox4x32-10 with key `seed` and counter (i / 8, salt), the (i % 8)th 16 of its 128, where i is
//   the row-major index of the element in the whole parameter, never in the shard: any sharding rounds every
//   element the same. `salt` tells parameters apart.
#include "graph/base/text.h"
#include "graph/ops/op_support.h"

namespace tessera {

using namespace ops;

namespace {
// Checks the settings of one step from operand `first` on.
Status check_settings(std::string_view op, Types in, int first, int settings) {
  for (int i = first; i < first + settings; ++i) {
    TSR_RETURN_IF_ERROR(check_dtype(op, in, i, "setting", DType::kF64));
    TSR_RETURN_IF_ERROR(check_shape(op, in, i, "setting", Shape{}));
  }
  return {};
}

// Checks p, g of one float type; `states` tensors after them of p's shape; then scalars, then settings of the step.
Status check_update(std::string_view op, Types in, int states, int scalars, int settings) {
  const int first = 2 + states + scalars + 1;  // setting
  if (static_cast<int>(in.size()) > first) {
    TSR_RETURN_IF_ERROR(check_count(op, in, first + settings));
    TSR_RETURN_IF_ERROR(check_settings(op, in, first, settings));
    in = in.first(static_cast<size_t>(first));
  }
  TSR_RETURN_IF_ERROR(check_count(op, in, first - 1, first));
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

// Checks p bf16, g of another float type; `states` tensors after them as g; then scalars as g, settings of the step,
// and the seed.
Status check_stochastic(std::string_view op, Types in, int states, int scalars, int settings) {
  const int first = 2 + states + scalars + 1;  // setting, or the seed
  const bool by_step = static_cast<int>(in.size()) > first + 1;
  TSR_RETURN_IF_ERROR(check_count(op, in, first + (by_step ? settings : 0) + 1));
  if (by_step) TSR_RETURN_IF_ERROR(check_settings(op, in, first, settings));
  TSR_RETURN_IF_ERROR(check_dtype(op, in, 0, "parameter", DType::kBF16));
  TSR_RETURN_IF_ERROR(check_dtype(op, in, 1, "gradient", statistics_dtype(in[1].dtype)));
  const int seed = static_cast<int>(in.size()) - 1;
  for (int i = 1; i < first; ++i) {
    const bool whole = i < 2 + states;
    const std::string_view name = i == 1 ? "gradient" : whole ? "state" : "scalar";
    TSR_RETURN_IF_ERROR(check_dtype(op, in, i, name, in[1].dtype));
    TSR_RETURN_IF_ERROR(check_shape(op, in, i, name, whole ? in[0].shape : Shape{}));
  }
  TSR_RETURN_IF_ERROR(check_dtype(op, in, seed, "seed", DType::kI64));
  return check_shape(op, in, seed, "seed", Shape{});
}
const AttrSpec kSalt = {"salt", AttrType::kI64, AttrValue(int64_t{0}),
                        "different for every parameter of a graph"};
const AttrSpec kLrScale = {.name = "lr_scale",
                           .type = AttrType::kF64,
                           .default_value = AttrValue(1.0),
                           .meaning = "factor on lr, of this parameter",
                           .is_late = true};
const AttrSpec kFixedDecay = {.name = "fixed_decay",
                              .type = AttrType::kI64,
                              .default_value = AttrValue(int64_t{0}),
                              .meaning = "1: weight_decay is this parameter's own in every step",
                              .is_late = true};

Status check_group(std::string_view op, Attrs attrs) {
  TSR_RETURN_IF_ERROR(check_flag(op, attrs, "fixed_decay"));
  TSR_RETURN_IF_ERROR(check_range(op, attrs, "weight_decay", 0, kUnbounded));
  return check_range(op, attrs, "lr_scale", 0, kUnbounded);
}
}  // namespace

// --- adamw_update (Loshchilov and Hutter, "Decoupled weight decay regularization", ICLR 2019)
//   p, g, m, v, lr, step (1 for the first), gscale optional, settings optional -> p, m, v
//   m = beta1 m + (1 - beta1) g,  v = beta2 v + (1 - beta2) g^2
//   p = p - lr (m / (1 - beta1^step) / (sqrt(v / (1 - beta2^step)) + eps) + weight_decay p)

namespace {
// The salt is for adamw_update_stochastic only.
const AttrSpec kAdamwAttrs[] = {
    {"beta1", AttrType::kF64, AttrValue(0.9), "decay of the mean of gradients"},
    {"beta2", AttrType::kF64, AttrValue(0.999), "decay of the mean of squared gradients"},
    {"eps", AttrType::kF64, AttrValue(1e-8), "added to the root of the second moment"},
    {"weight_decay", AttrType::kF64, AttrValue(0.01), "decoupled; times lr"},
    kLrScale,
    kFixedDecay,
    kSalt,
};

Inferred adamw_types(std::string_view op, Types in, Attrs attrs) {
  TSR_RETURN_IF_ERROR(check_range(op, attrs, "beta1", 0, 1));
  TSR_RETURN_IF_ERROR(check_range(op, attrs, "beta2", 0, 1));
  TSR_RETURN_IF_ERROR(check_range(op, attrs, "eps", 0, kUnbounded));
  TSR_RETURN_IF_ERROR(check_group(op, attrs));
  return std::vector<TensorType>{in[0], in[2], in[3]};
}
Inferred adamw_infer(Types in, Attrs attrs) {
  TSR_RETURN_IF_ERROR(check_update("adamw_update", in, 2, 2, 4));
  return adamw_types("adamw_update", in, attrs);
}
Inferred adamw_stochastic_infer(Types in, Attrs attrs) {
  TSR_RETURN_IF_ERROR(check_stochastic("adamw_update_stochastic", in, 2, 2, 4));
  return adamw_types("adamw_update_stochastic", in, attrs);
}

constexpr int kAdamwInPlace[] = {0, 2, 3};
}  // namespace

extern const OpDef kAdamwUpdate = {
    .name = "adamw_update",
    .attrs = std::span(kAdamwAttrs).first(std::size(kAdamwAttrs) - 1),
    .infer = adamw_infer,
    .sharding = [](const OpView& v) { return pointwise_rule(v); },
    .cost = elementwise_cost<17>,
    .in_place = kAdamwInPlace,
    .is_update = true,
    .stochastic_op = "adamw_update_stochastic",
};

// p bf16, g, m, v, lr, step, gscale, settings optional, seed i64 -> p, m, v
extern const OpDef kAdamwUpdateStochastic = {
    .name = "adamw_update_stochastic",
    .attrs = kAdamwAttrs,
    .infer = adamw_stochastic_infer,
    .sharding = [](const OpView& v) { return pointwise_rule(v); },
    .cost = elementwise_cost<30>,
    .in_place = kAdamwInPlace,
    .is_update = true,
};

// --- sgd_update
//   p, g, buf, lr, gscale optional, settings optional -> p, buf
//   buf = momentum buf + g + weight_decay p,  p = p - lr buf

namespace {
// The salt is for sgd_update_stochastic only.
const AttrSpec kSgdAttrs[] = {
    {"momentum", AttrType::kF64, AttrValue(0.9), "share of the last step kept"},
    {"weight_decay", AttrType::kF64, AttrValue(0.0), "added to the gradient, times the parameter"},
    kLrScale,
    kFixedDecay,
    kSalt,
};

Inferred sgd_types(std::string_view op, Types in, Attrs attrs) {
  TSR_RETURN_IF_ERROR(check_range(op, attrs, "momentum", 0, 1));
  TSR_RETURN_IF_ERROR(check_group(op, attrs));
  return std::vector<TensorType>{in[0], in[2]};
}
Inferred sgd_infer(Types in, Attrs attrs) {
  TSR_RETURN_IF_ERROR(check_update("sgd_update", in, 1, 1, 2));
  return sgd_types("sgd_update", in, attrs);
}
Inferred sgd_stochastic_infer(Types in, Attrs attrs) {
  TSR_RETURN_IF_ERROR(check_stochastic("sgd_update_stochastic", in, 1, 1, 2));
  return sgd_types("sgd_update_stochastic", in, attrs);
}

constexpr int kSgdInPlace[] = {0, 2};
}  // namespace

extern const OpDef kSgdUpdate = {
    .name = "sgd_update",
    .attrs = std::span(kSgdAttrs).first(std::size(kSgdAttrs) - 1),
    .infer = sgd_infer,
    .sharding = [](const OpView& v) { return pointwise_rule(v); },
    .cost = elementwise_cost<6>,
    .in_place = kSgdInPlace,
    .is_update = true,
    .stochastic_op = "sgd_update_stochastic",
};

// p bf16, g, buf, lr, gscale, settings optional, seed i64 -> p, buf
extern const OpDef kSgdUpdateStochastic = {
    .name = "sgd_update_stochastic",
    .attrs = kSgdAttrs,
    .infer = sgd_stochastic_infer,
    .sharding = [](const OpView& v) { return pointwise_rule(v); },
    .cost = elementwise_cost<19>,
    .in_place = kSgdInPlace,
    .is_update = true,
};

// --- lion_update (Chen et al., "Symbolic discovery of optimization algorithms", NeurIPS 2023, algorithm 2)
//   p, g, m, lr, gscale optional, settings optional -> p, m
//   p = p - lr (sign(beta1 m + (1 - beta1) g) + weight_decay p),  m = beta2 m + (1 - beta2) g;  sign(0) = 0

namespace {
// The salt is for lion_update_stochastic only.
const AttrSpec kLionAttrs[] = {
    {"beta1", AttrType::kF64, AttrValue(0.9), "share of the mean in the direction"},
    {"beta2", AttrType::kF64, AttrValue(0.99), "decay of the mean of gradients"},
    {"weight_decay", AttrType::kF64, AttrValue(0.0), "decoupled; times lr"},
    kLrScale,
    kFixedDecay,
    kSalt,
};

Inferred lion_types(std::string_view op, Types in, Attrs attrs) {
  TSR_RETURN_IF_ERROR(check_range(op, attrs, "beta1", 0, 1));
  TSR_RETURN_IF_ERROR(check_range(op, attrs, "beta2", 0, 1));
  TSR_RETURN_IF_ERROR(check_group(op, attrs));
  return std::vector<TensorType>{in[0], in[2]};
}
Inferred lion_infer(Types in, Attrs attrs) {
  TSR_RETURN_IF_ERROR(check_update("lion_update", in, 1, 1, 3));
  return lion_types("lion_update", in, attrs);
}
Inferred lion_stochastic_infer(Types in, Attrs attrs) {
  TSR_RETURN_IF_ERROR(check_stochastic("lion_update_stochastic", in, 1, 1, 3));
  return lion_types("lion_update_stochastic", in, attrs);
}

constexpr int kLionInPlace[] = {0, 2};
}  // namespace

extern const OpDef kLionUpdate = {
    .name = "lion_update",
    .attrs = std::span(kLionAttrs).first(std::size(kLionAttrs) - 1),
    .infer = lion_infer,
    .sharding = [](const OpView& v) { return pointwise_rule(v); },
    .cost = elementwise_cost<11>,
    .in_place = kLionInPlace,
    .is_update = true,
    .stochastic_op = "lion_update_stochastic",
};

// p bf16, g, m, lr, gscale, settings optional, seed i64 -> p, m
extern const OpDef kLionUpdateStochastic = {
    .name = "lion_update_stochastic",
    .attrs = kLionAttrs,
    .infer = lion_stochastic_infer,
    .sharding = [](const OpView& v) { return pointwise_rule(v); },
    .cost = elementwise_cost<24>,
    .in_place = kLionInPlace,
    .is_update = true,
};

}  // namespace tessera
