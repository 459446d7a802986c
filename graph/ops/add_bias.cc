// add_bias(x, b)[..., n] = x[..., n] + b[n].
//   x [..., N], b [N] -> y [..., N]; dx = dy, db = dy summed over the leading dims.
#include "graph/ops/op_support.h"

namespace tessera {

using namespace ops;

namespace {
Inferred infer(Types in, Attrs) {
  TSR_RETURN_IF_ERROR(check_count("add_bias", in, 2));
  TSR_RETURN_IF_ERROR(check_float("add_bias", in, 0, "x"));
  TSR_RETURN_IF_ERROR(check_rank_at_least("add_bias", in, 0, "x", 1));
  TSR_RETURN_IF_ERROR(check_dtype("add_bias", in, 1, "b", in[0].dtype));
  TSR_RETURN_IF_ERROR(check_shape("add_bias", in, 1, "b", Shape{last_extent(in[0].shape)}));
  return std::vector<TensorType>{in[0]};
}

Status vjp(VjpBuilder& b) {
  const auto dy = b.output_grad(0);
  if (!dy) return {};
  if (b.needs_grad(0)) TSR_RETURN_IF_ERROR(b.set_input_grad(0, *dy));
  return set_grad(b, 1, [&] { return b.emit("sum_leading", {*dy}); });
}

ShardingRule sharding(const OpView& view) {
  const std::string leading = leading_letters(view.inputs[0].shape.rank() - 1, "n");
  return make_rule(leading + "n,n->" + leading + "n", {{0, 1}});
}
}  // namespace

extern const OpDef kAddBias = {
    .name = "add_bias",
    .infer = infer,
    .vjp = vjp,
    .sharding = sharding,
    .cost = elementwise_cost<1>,
    .in_place = kInPlaceFirst,
    .algebra = Algebra::kBiased,
};

}  // namespace tessera
