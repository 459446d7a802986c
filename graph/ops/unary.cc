// Unary element-wise functions: x [d0, ..., dn] -> y the same type. Their gradients are made of the binary
// ops.
#include "graph/ops/op_support.h"

namespace tessera {

using namespace ops;

namespace {
Inferred infer_unary(std::string_view op, Types in) {
  TSR_RETURN_IF_ERROR(check_count(op, in, 1));
  TSR_RETURN_IF_ERROR(check_float(op, in, 0, "x"));
  return std::vector<TensorType>{in[0]};
}

ShardingRule nonlinear_sharding(const OpView& view) { return pointwise_rule(view); }
ShardingRule linear_sharding(const OpView& view) { return pointwise_rule(view, {{0}}); }
}  // namespace

// --- exp: dx = dy * y

namespace {
Status exp_vjp(VjpBuilder& b) {
  const auto dy = b.output_grad(0);
  if (!dy) return {};
  return set_grad(b, 0, [&] { return b.emit("mul", {*dy, b.output(0)}); });
}
}  // namespace

extern const OpDef kExp = {
    .name = "exp",
    .infer = [](Types in, Attrs) { return infer_unary("exp", in); },
    .vjp = exp_vjp,
    .sharding = nonlinear_sharding,
    .cost = elementwise_cost<5>,
    .in_place = kInPlaceFirst,
};

// --- log: dx = dy / x

namespace {
Status log_vjp(VjpBuilder& b) {
  const auto dy = b.output_grad(0);
  if (!dy) return {};
  return set_grad(b, 0, [&] { return b.emit("div", {*dy, b.input(0)}); });
}
}  // namespace

extern const OpDef kLog = {
    .name = "log",
    .infer = [](Types in, Attrs) { return infer_unary("log", in); },
    .vjp = log_vjp,
    .sharding = nonlinear_sharding,
    .cost = elementwise_cost<5>,
    .in_place = kInPlaceFirst,
};

// --- softplus: y = log(1 + exp(x)), which is minus the log of sigmoid(-x); dx = dy * sigmoid(x)

namespace {
Status softplus_vjp(VjpBuilder& b) {
  const auto dy = b.output_grad(0);
  if (!dy) return {};
  return set_grad(b, 0, [&]() -> Result<TensorId> {
    TSR_ASSIGN_OR_RETURN(const TensorId slope, b.emit("sigmoid", {b.input(0)}));
    return b.emit("mul", {*dy, slope});
  });
}
}  // namespace

extern const OpDef kSoftplus = {
    .name = "softplus",
    .infer = [](Types in, Attrs) { return infer_unary("softplus", in); },
    .vjp = softplus_vjp,
    .sharding = nonlinear_sharding,
    .cost = elementwise_cost<10>,
    .in_place = kInPlaceFirst,
};

// --- log1mexp: y = log(1 - exp(x)), x < 0: the log probability of what x is not; dx = -dy * exp(x - y)

namespace {
Status log1mexp_vjp(VjpBuilder& b) {
  const auto dy = b.output_grad(0);
  if (!dy) return {};
  return set_grad(b, 0, [&]() -> Result<TensorId> {
    TSR_ASSIGN_OR_RETURN(const TensorId log_odds, b.emit("sub", {b.input(0), b.output(0)}));
    TSR_ASSIGN_OR_RETURN(const TensorId odds, b.emit("exp", {log_odds}));
    TSR_ASSIGN_OR_RETURN(const TensorId product, b.emit("mul", {*dy, odds}));
    return b.emit("neg", {product});
  });
}
}  // namespace

extern const OpDef kLog1mexp = {
    .name = "log1mexp",
    .infer = [](Types in, Attrs) { return infer_unary("log1mexp", in); },
    .vjp = log1mexp_vjp,
    .sharding = nonlinear_sharding,
    .cost = elementwise_cost<10>,
    .in_place = kInPlaceFirst,
};

// --- sqrt: dx = dy / (2 y)

namespace {
Status sqrt_vjp(VjpBuilder& b) {
  const auto dy = b.output_grad(0);
  if (!dy) return {};
  return set_grad(b, 0, [&]() -> Result<TensorId> {
    TSR_ASSIGN_OR_RETURN(const TensorId half, b.emit("scale", {*dy}, {{"factor", 0.5}}));
    return b.emit("div", {half, b.output(0)});
  });
}
}  // namespace

extern const OpDef kSqrt = {
    .name = "sqrt",
    .infer = [](Types in, Attrs) { return infer_unary("sqrt", in); },
    .vjp = sqrt_vjp,
    .sharding = nonlinear_sharding,
    .cost = elementwise_cost<4>,
    .in_place = kInPlaceFirst,
};

// --- square: dx = 2 x dy

namespace {
Status square_vjp(VjpBuilder& b) {
  const auto dy = b.output_grad(0);
  if (!dy) return {};
  return set_grad(b, 0, [&]() -> Result<TensorId> {
    TSR_ASSIGN_OR_RETURN(const TensorId twice, b.emit("scale", {*dy}, {{"factor", 2.0}}));
    return b.emit("mul", {twice, b.input(0)});
  });
}
}  // namespace

extern const OpDef kSquare = {
    .name = "square",
    .infer = [](Types in, Attrs) { return infer_unary("square", in); },
    .vjp = square_vjp,
    .sharding = nonlinear_sharding,
    .cost = elementwise_cost<1>,
    .in_place = kInPlaceFirst,
};

// --- neg: y = -x

namespace {
Status neg_vjp(VjpBuilder& b) {
  const auto dy = b.output_grad(0);
  if (!dy) return {};
  return set_grad(b, 0, [&] { return b.emit("neg", {*dy}); });
}
}  // namespace

extern const OpDef kNeg = {
    .name = "neg",
    .infer = [](Types in, Attrs) { return infer_unary("neg", in); },
    .vjp = neg_vjp,
    .sharding = linear_sharding,
    .cost = elementwise_cost<1>,
    .in_place = kInPlaceFirst,
};

// --- scale: y = factor * x

namespace {
const AttrSpec kScaleAttrs[] = {
    {"factor", AttrType::kF64, std::nullopt, "what every element is multiplied by"},
};

Status scale_vjp(VjpBuilder& b) {
  const auto dy = b.output_grad(0);
  if (!dy) return {};
  return set_grad(b, 0, [&] { return b.emit("scale", {*dy}, {{"factor", attr_f64(b.attrs(), "factor")}}); });
}
}  // namespace

extern const OpDef kScale = {
    .name = "scale",
    .attrs = kScaleAttrs,
    .infer = [](Types in, Attrs) { return infer_unary("scale", in); },
    .vjp = scale_vjp,
    .sharding = linear_sharding,
    .cost = elementwise_cost<1>,
    .in_place = kInPlaceFirst,
    .algebra = Algebra::kMultiple,
};

// --- scale_by: y = s * x, s [] (f64 in an f64 graph, else f32); ds = sum of dy * x

namespace {
Inferred scale_by_infer(Types in, Attrs) {
  TSR_RETURN_IF_ERROR(check_count("scale_by", in, 2));
  TSR_RETURN_IF_ERROR(check_float("scale_by", in, 0, "x"));
  TSR_RETURN_IF_ERROR(check_dtype("scale_by", in, 1, "s", statistics_dtype(in[0].dtype)));
  TSR_RETURN_IF_ERROR(check_shape("scale_by", in, 1, "s", Shape{}));
  return std::vector<TensorType>{in[0]};
}

Status scale_by_vjp(VjpBuilder& b) {
  const auto dy = b.output_grad(0);
  if (!dy) return {};
  TSR_RETURN_IF_ERROR(set_grad(b, 0, [&] { return b.emit("scale_by", {*dy, b.input(1)}); }));
  return set_grad(b, 1, [&]() -> Result<TensorId> {
    TSR_ASSIGN_OR_RETURN(TensorId sum, b.emit("mul", {*dy, b.input(0)}));
    const TensorType& x = b.input_type(0);
    const DType wide = statistics_dtype(x.dtype);
    if (x.dtype != wide) {
      TSR_ASSIGN_OR_RETURN(sum, b.emit("cast", {sum}, {{"dtype", to_text(wide)}}));
    }
    if (x.shape.rank() == 0) return sum;
    std::vector<int64_t> axes;
    for (int dim = 0; dim < x.shape.rank(); ++dim) axes.push_back(dim);
    return b.emit("reduce_sum", {sum}, {{"axes", axes}});
  });
}
}  // namespace

extern const OpDef kScaleBy = {
    .name = "scale_by",
    .infer = scale_by_infer,
    .vjp = scale_by_vjp,
    .sharding =
        [](const OpView& v) {
          return pointwise_rule(v, {{0}, {1}});
        },
    .cost = elementwise_cost<1>,
    .in_place = kInPlaceFirst,
    .algebra = Algebra::kScaled,
};

}  // namespace tessera
