// zeros_like(shape: x) = 0 everywhere, of the type of x.  x [d0, ..., dn] -> y the same type
#include "graph/ops/op_support.h"

namespace tessera {

using namespace ops;

namespace {
Inferred infer(Types in, Attrs) {
  TSR_RETURN_IF_ERROR(check_count("zeros_like", in, 1));
  return std::vector<TensorType>{in[0]};
}

constexpr int kShapeOnly[] = {0};
}  // namespace

extern const OpDef kZerosLike = {
    .name = "zeros_like",
    .infer = infer,
    .vjp = no_gradient,
    .sharding = [](const OpView& v) { return pointwise_rule(v); },
    .cost = [](const OpView& v) { return elementwise_cost(v, 0, kShapeOnly); },
    .shape_only = kShapeOnly,
};

}  // namespace tessera
