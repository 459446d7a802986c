// adapter_expand(low, b, adapter, base)[t, n] = base[t, n] + sum_r low[t, r] * b[adapter[t], r, n]: the second
// product of each token's low-rank adapter, added to the weight's own product. Tokens without an adapter (-1)
// have the bits of base; a token's result depends on that token alone, and rows of b beyond an adapter's rank,
// which are 0, do not change it ("SGMV expand", Punica, Chen et al., 2023). A factor alpha / rank is part of b.
// low [..., R] f32 or f64 (of adapter_shrink), b [S, R, N], adapter [...] i32, base [..., N] -> [..., N] as base.
// b is of low's type, bf16 or f16; base of any float type that combines with low. Jointly linear in low and base.
// b trains in low's type. Gradients of low and base of a token depend on that token alone too.
#include "graph/base/text.h"
#include "graph/ops/adapter_support.h"

namespace tessera {

using namespace ops;

namespace {

constexpr std::string_view kName = "adapter_expand";
const int kInPlace[] = {3};

Inferred infer(Types in, Attrs) {
  TSR_RETURN_IF_ERROR(check_count(kName, in, 4));
  TSR_RETURN_IF_ERROR(check_float(kName, in, 3, "base"));
  TSR_RETURN_IF_ERROR(check_dtype(kName, in, 0, "low", statistics_dtype(in[3].dtype)));
  TSR_RETURN_IF_ERROR(check_rank_at_least(kName, in, 0, "low", 1));
  const Shape tokens = without_last(in[0].shape);
  TSR_RETURN_IF_ERROR(check_adapter_factors(kName, in, "b", in[0].dtype));
  TSR_RETURN_IF_ERROR(check_extent(kName, in, 1, "b", 1, last_extent(in[0].shape)));
  TSR_RETURN_IF_ERROR(check_indices(kName, in, 2, "adapter", tokens));
  TSR_RETURN_IF_ERROR(check_shape(kName, in, 3, "base", with_last(tokens, in[1].shape[2])));
  return std::vector<TensorType>{in[3]};
}

Status vjp(VjpBuilder& b) {
  const auto dy = b.output_grad(0);
  if (!dy) return {};
  if (b.needs_grad(3)) TSR_RETURN_IF_ERROR(b.set_input_grad(3, *dy));
  TSR_RETURN_IF_ERROR(
      set_grad(b, 0, [&] { return b.emit("adapter_shrink", {*dy, b.input(1), b.input(2)}); }));
  return set_factors_grad(b, kName, "b", b.input(0), b.input_type(0).dtype, *dy);
}

ShardingRule sharding(const OpView& view) {
  const std::string tokens = leading_letters(view.inputs[0].shape.rank() - 1, "srn");
  return make_rule(tokens + "r,srn," + tokens + "," + tokens + "n->" + tokens + "n", {{0, 3}}, "sr");
}

OpCost cost(const OpView& view) { return adapter_product_cost(view, last_extent(view.inputs[3].shape)); }

}  // namespace

extern const OpDef kAdapterExpand = {
    .name = kName, .infer = infer, .vjp = vjp, .sharding = sharding, .cost = cost, .in_place = kInPlace};

}  // namespace tessera
