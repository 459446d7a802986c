// stop_gradient(x) = x, a constant to differentiation: what x is computed of gets no gradient through it.
//   x [d0, ..., dn] of reals -> y the same type.  Linear in x.
#include "graph/ops/op_support.h"

namespace tessera {

using namespace ops;

namespace {

constexpr std::string_view kName = "stop_gradient";

Inferred infer(Types in, Attrs) {
  TSR_RETURN_IF_ERROR(check_count(kName, in, 1));
  TSR_RETURN_IF_ERROR(check_float(kName, in, 0, "x"));
  return std::vector<TensorType>{in[0]};
}

}  // namespace

extern const OpDef kStopGradient = {
    .name = kName,
    .infer = infer,
    .vjp = no_gradient,
    .sharding = [](const OpView& v) { return pointwise_rule(v, {{0}}); },
    .cost = elementwise_cost<0>,
    .in_place = kInPlaceFirst,
};

}  // namespace tessera
