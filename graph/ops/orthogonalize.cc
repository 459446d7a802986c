// orthogonalize(x): five steps (attribute `steps`) of the iteration of Newton and Schulz with Muon's quintic (Jordan et
// al., "Muon: an optimizer for hidden layers in neural networks", 2024), which brings all singular values of a matrix
// near 1 and leaves its singular vectors:
//   x0 = x / max(|x|, eps),  x[i + 1] = a x[i] + (b g + c g g) x[i],  g = x[i] x[i]^T  (M <= N; else with x^T)
//   x [M, N] f32 or f64 -> y [M, N]
// Every result needs all of x: a plan gives a matrix to one rank, its owner (NodePlan::factor_firsts), or to all.
#include "graph/base/text.h"
#include "graph/ops/op_support.h"

namespace tessera {

using namespace ops;

namespace {

constexpr std::string_view kName = "orthogonalize";
const AttrSpec kAttrs[] = {
    {"steps", AttrType::kI64, AttrValue(int64_t{5}), "of the iteration"},
    {"eps", AttrType::kF64, AttrValue(1e-7), "least norm that x is divided by"},
    allow_tf32_spec(),
};

Inferred infer(Types in, Attrs attrs) {
  TSR_RETURN_IF_ERROR(check_count(kName, in, 1));
  TSR_RETURN_IF_ERROR(check_rank(kName, in, 0, "x", 2));
  if (in[0].dtype != DType::kF64) TSR_RETURN_IF_ERROR(check_dtype(kName, in, 0, "x", DType::kF32));
  TSR_RETURN_IF_ERROR(check_flag(kName, attrs, "allow_tf32"));
  const int64_t steps = attr_i64(attrs, "steps");
  if (steps < 1 || steps > 100)
    return Status(StatusCode::kInvalidArgument, format("{}: steps is {}, wanted 1 to 100", kName, steps));
  if (!(attr_f64(attrs, "eps") > 0))
    return Status(StatusCode::kInvalidArgument,
                  format("{}: eps is {}, wanted more than 0", kName, attr_f64(attrs, "eps")));
  return std::vector<TensorType>{in[0]};
}

// Counts the products of a step: x x^T, its square, and the sum of both times x.
OpCost cost(const OpView& view) {
  const Shape& shape = view.inputs[0].shape;
  const auto least = static_cast<double>(std::min(shape[0], shape[1]));
  const auto most = static_cast<double>(std::max(shape[0], shape[1]));
  const double step = 4 * least * least * most + 2 * least * least * least + 3 * least * (least + most);
  return traffic_cost(view, static_cast<double>(attr_i64(view.attrs, "steps")) * step + 3 * least * most);
}

}  // namespace

extern const OpDef kOrthogonalize = {
    .name = kName,
    .attrs = kAttrs,
    .infer = infer,
    .sharding = [](const OpView&) { return make_rule("mn->mn", {}, "mn"); },
    .cost = cost,
};

}  // namespace tessera
