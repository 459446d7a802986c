// Binary element-wise ops: x, y same type [d0, ..., dn] -> z the same. The result may reuse the buffer of x.
#include "graph/ops/op_support.h"

namespace tessera {

using namespace ops;

namespace {
Inferred infer_pair(std::string_view op, Types in) {
  TSR_RETURN_IF_ERROR(check_count(op, in, 2));
  TSR_RETURN_IF_ERROR(check_float(op, in, 0, "x"));
  TSR_RETURN_IF_ERROR(check_same_type(op, in, 0, 1));
  return std::vector<TensorType>{in[0]};
}
}  // namespace

// --- add: z = x + y. Jointly linear: two addends of a partial sum add up to an addend of the sum.

namespace {
Status add_vjp(VjpBuilder& b) {
  const auto dz = b.output_grad(0);
  if (!dz) return {};
  for (int i : {0, 1})
    if (b.needs_grad(i)) TSR_RETURN_IF_ERROR(b.set_input_grad(i, *dz));
  return {};
}
}  // namespace

extern const OpDef kAdd = {
    .name = "add",
    .infer = [](Types in, Attrs) { return infer_pair("add", in); },
    .vjp = add_vjp,
    .sharding =
        [](const OpView& v) {
          return pointwise_rule(v, {{0, 1}});
        },
    .cost = elementwise_cost<1>,
    .in_place = kInPlaceFirst,
    .algebra = Algebra::kSum,
};

// --- sub: z = x - y

namespace {
Status sub_vjp(VjpBuilder& b) {
  const auto dz = b.output_grad(0);
  if (!dz) return {};
  if (b.needs_grad(0)) TSR_RETURN_IF_ERROR(b.set_input_grad(0, *dz));
  return set_grad(b, 1, [&] { return b.emit("neg", {*dz}); });
}
}  // namespace

extern const OpDef kSub = {
    .name = "sub",
    .infer = [](Types in, Attrs) { return infer_pair("sub", in); },
    .vjp = sub_vjp,
    .sharding =
        [](const OpView& v) {
          return pointwise_rule(v, {{0, 1}});
        },
    .cost = elementwise_cost<1>,
    .in_place = kInPlaceFirst,
    .algebra = Algebra::kDifference,
};

// --- mul: z = x * y; dx = dz * y, dy = dz * x

namespace {
Status mul_vjp(VjpBuilder& b) {
  const auto dz = b.output_grad(0);
  if (!dz) return {};
  TSR_RETURN_IF_ERROR(set_grad(b, 0, [&] { return b.emit("mul", {*dz, b.input(1)}); }));
  return set_grad(b, 1, [&] { return b.emit("mul", {*dz, b.input(0)}); });
}
}  // namespace

extern const OpDef kMul = {
    .name = "mul",
    .infer = [](Types in, Attrs) { return infer_pair("mul", in); },
    .vjp = mul_vjp,
    .sharding =
        [](const OpView& v) {
          return pointwise_rule(v, {{0}, {1}});
        },
    .cost = elementwise_cost<1>,
    .in_place = kInPlaceFirst,
    .algebra = Algebra::kProduct,
};

// --- div: z = x / y; dx = dz / y, dy = -dz * z / y

namespace {
Status div_vjp(VjpBuilder& b) {
  const auto dz = b.output_grad(0);
  if (!dz) return {};
  if (!b.needs_grad(0) && !b.needs_grad(1)) return {};
  TSR_ASSIGN_OR_RETURN(const TensorId dx, b.emit("div", {*dz, b.input(1)}));
  if (b.needs_grad(0)) TSR_RETURN_IF_ERROR(b.set_input_grad(0, dx));
  return set_grad(b, 1, [&]() -> Result<TensorId> {
    TSR_ASSIGN_OR_RETURN(const TensorId product, b.emit("mul", {dx, b.output(0)}));
    return b.emit("neg", {product});
  });
}
}  // namespace

extern const OpDef kDiv = {
    .name = "div",
    .infer = [](Types in, Attrs) { return infer_pair("div", in); },
    .vjp = div_vjp,
    .sharding = [](const OpView& v) { return pointwise_rule(v, {{0}}); },
    .cost = elementwise_cost<1>,
    .in_place = kInPlaceFirst,
    .algebra = Algebra::kQuotient,
};

}  // namespace tessera
