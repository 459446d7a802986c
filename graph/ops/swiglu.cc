// swiglu(gate, up) = silu(gate) * up, silu(g) = g * sigmoid(g).
//   gate, up same type [d0, ..., dn] -> y the same
// swiglu_grad(gate, up, dy) -> dgate = dy * up * s * (1 + gate * (1 - s)), dup = dy * silu(gate), s =
// sigmoid(gate).
#include "graph/ops/op_support.h"

namespace tessera {

using namespace ops;

// --- swiglu

namespace {
Inferred infer(Types in, Attrs) {
  TSR_RETURN_IF_ERROR(check_count("swiglu", in, 2));
  TSR_RETURN_IF_ERROR(check_float("swiglu", in, 0, "gate"));
  TSR_RETURN_IF_ERROR(check_same_type("swiglu", in, 0, 1));
  return std::vector<TensorType>{in[0]};
}

Status vjp(VjpBuilder& b) {
  const auto dy = b.output_grad(0);
  if (!dy || (!b.needs_grad(0) && !b.needs_grad(1))) return {};
  const TensorId operands[] = {b.input(0), b.input(1), *dy};
  TSR_ASSIGN_OR_RETURN(const std::vector<TensorId> grads, b.emit_all("swiglu_grad", operands));
  for (int i : {0, 1})
    if (b.needs_grad(i)) TSR_RETURN_IF_ERROR(b.set_input_grad(i, grads[static_cast<size_t>(i)]));
  return {};
}
}  // namespace

extern const OpDef kSwiglu = {
    .name = "swiglu",
    .infer = infer,
    .vjp = vjp,
    .sharding = [](const OpView& v) { return pointwise_rule(v, {{1}}); },
    .cost = elementwise_cost<9>,
    .in_place = kInPlaceFirst,
};

// --- swiglu_grad

namespace {
Inferred grad_infer(Types in, Attrs) {
  TSR_RETURN_IF_ERROR(check_count("swiglu_grad", in, 3));
  TSR_RETURN_IF_ERROR(check_float("swiglu_grad", in, 0, "gate"));
  for (int i : {1, 2}) TSR_RETURN_IF_ERROR(check_same_type("swiglu_grad", in, 0, i));
  return std::vector<TensorType>{in[0], in[0]};
}

constexpr int kGradInPlace[] = {0, 1};
}  // namespace

extern const OpDef kSwigluGrad = {
    .name = "swiglu_grad",
    .infer = grad_infer,
    .sharding = [](const OpView& v) { return pointwise_rule(v, {{2}}); },
    .cost = elementwise_cost<15>,
    .in_place = kGradInPlace,
};

}  // namespace tessera
