// adapter_shrink(x, a, adapter)[t, r] = sum_k a[adapter[t], r, k] * x[t, k]: the first product of each
// token's low-rank adapter, one of many ("SGMV shrink", Punica, Chen et al., 2023). 0 for tokens without an
// adapter (-1). A token's result depends on that token alone.
// x [..., K], a [S, R, K], adapter [...] i32 -> low [..., R] in f32 (f64 for x in f64), for adapter_expand.
// a is of low's type, bf16 or f16; it trains in low's type. dx of a token depends on that token alone too.
#include "graph/ops/adapter_support.h"

namespace tessera {

using namespace ops;

namespace {

constexpr std::string_view kName = "adapter_shrink";

Inferred infer(Types in, Attrs) {
  TSR_RETURN_IF_ERROR(check_count(kName, in, 3));
  TSR_RETURN_IF_ERROR(check_float(kName, in, 0, "x"));
  TSR_RETURN_IF_ERROR(check_rank_at_least(kName, in, 0, "x", 1));
  const Shape tokens = without_last(in[0].shape);
  const DType low = statistics_dtype(in[0].dtype);
  TSR_RETURN_IF_ERROR(check_adapter_factors(kName, in, "a", low));
  TSR_RETURN_IF_ERROR(check_extent(kName, in, 1, "a", 2, last_extent(in[0].shape)));
  TSR_RETURN_IF_ERROR(check_indices(kName, in, 2, "adapter", tokens));
  return std::vector<TensorType>{{low, with_last(tokens, in[1].shape[1])}};
}

Status vjp(VjpBuilder& b) {
  const auto dlow = b.output_grad(0);
  if (!dlow) return {};
  const TensorId x = b.input(0);
  TSR_RETURN_IF_ERROR(set_grad(b, 0, [&]() -> Result<TensorId> {
    TSR_ASSIGN_OR_RETURN(const TensorId zeros, b.emit("zeros_like", {x}));
    return b.emit("adapter_expand", {*dlow, b.input(1), b.input(2), zeros});
  }));
  return set_factors_grad(b, kName, "a", *dlow, b.output_type(0).dtype, x);
}

// Slots are indexed by tokens, and the rank is small: both stay whole.
ShardingRule sharding(const OpView& view) {
  const std::string tokens = leading_letters(view.inputs[0].shape.rank() - 1, "srk");
  return make_rule(tokens + "k,srk," + tokens + "->" + tokens + "r", {{0}}, "sr");
}

OpCost cost(const OpView& view) { return adapter_product_cost(view, last_extent(view.inputs[0].shape)); }

}  // namespace

extern const OpDef kAdapterShrink = {
    .name = kName, .infer = infer, .vjp = vjp, .sharding = sharding, .cost = cost};

}  // namespace tessera
