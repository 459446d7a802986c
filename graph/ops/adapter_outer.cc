// Gradients of the factors of low-rank adapters, many of them in one batch: sums of outer products over each slot's tokens.
#include "graph/ops/adapter_support.h"
#include "graph/phases.h"

namespace tessera {

using namespace ops;

namespace {

Inferred infer_outer(std::string_view op, Types in) {
  TSR_RETURN_IF_ERROR(check_count(op, in, 4));
  TSR_RETURN_IF_ERROR(check_float(op, in, 1, "x"));
  TSR_RETURN_IF_ERROR(check_rank_at_least(op, in, 1, "x", 1));
  TSR_RETURN_IF_ERROR(check_dtype(op, in, 0, "low", statistics_dtype(in[1].dtype)));
  TSR_RETURN_IF_ERROR(check_rank_at_least(op, in, 0, "low", 1));
  const Shape tokens = without_last(in[0].shape);
  TSR_RETURN_IF_ERROR(check_shape(op, in, 1, "x", with_last(tokens, last_extent(in[1].shape))));
  TSR_RETURN_IF_ERROR(check_indices(op, in, 2, "adapter", tokens));
  TSR_RETURN_IF_ERROR(check_dtype(op, in, 3, "sum", in[0].dtype));
  TSR_RETURN_IF_ERROR(check_rank(op, in, 3, "sum", 3));
  TSR_RETURN_IF_ERROR(check_extent(op, in, 3, "sum", 1, last_extent(in[0].shape)));
  TSR_RETURN_IF_ERROR(check_extent(op, in, 3, "sum", 2, last_extent(in[1].shape)));
  return std::vector<TensorType>{in[3]};
}

// The sum's dims are a, b and c, as those of `add` are, into which the phases' plan splits c.
std::string token_letters(const OpView& view) {
  return leading_letters(view.inputs[0].shape.rank() - 1, "abc");
}

std::string outer_rule(const std::string& tokens) {
  return format("{}b,{}c,{},abc->abc", tokens, tokens, tokens);
}

double outer_flops(const OpView& view) {
  return 2 * static_cast<double>(view.inputs[0].shape.elements()) *
         static_cast<double>(last_extent(view.inputs[1].shape));
}

constexpr int kSum[] = {3};

}  // namespace

// adapter_outer(low, x, adapter, sum)[s, r, k] = sum[s, r, k] + sum over tokens t with adapter[t] = s of low[t, r] x[t, k]:
// the gradient of the factors of adapter_shrink and adapter_expand.
//   low [..., T, R] f32, or f64 for x in f64, x [..., T, K], adapter [..., T] i32, sum [S, R, K] as low -> sum, in place
// The T tokens of a row are summed by themselves, in an order that depends on that row alone, and the sums of rows are added to
// `sum` in the order of rows: the bits of a slot do not depend on other slots' tokens, on the place of its rows in the batch, or
// on how many rows a call has. A slot without tokens in a call keeps its bits. Tokens whose adapter is none of the S slots (-1)
// count for none. Jointly linear in low and sum, and in x and sum. No gradient.
namespace adapter_outer {

constexpr std::string_view kName = "adapter_outer";

ShardingRule sharding(const OpView& view) {
  const std::string tokens = token_letters(view);
  ShardingRule rule = make_rule(outer_rule(tokens), {{0, 3}, {1, 3}}, "ab");
  for (const char token : tokens) rule.find(token)->kind = FactorKind::kPhased;
  return rule;
}

// A shard of the tokens has an addend of what is added.
Status phases(PhaseBuilder& b) {
  const TensorId sum = b.input(3);
  TSR_ASSIGN_OR_RETURN(const TensorId part,
                       b.emit("adapter_outer_part", {b.input(0), b.input(1), b.input(2), sum}));
  TSR_ASSIGN_OR_RETURN(const TensorId total, b.emit("add", {sum, part}));
  b.set_outputs({total});
  return {};
}

}  // namespace adapter_outer

extern const OpDef kAdapterOuter = {
    .name = adapter_outer::kName,
    .infer = [](Types in, Attrs) { return infer_outer(adapter_outer::kName, in); },
    .sharding = adapter_outer::sharding,
    .cost = [](const OpView& view) { return traffic_cost(view, outer_flops(view)); },
    .phases = adapter_outer::phases,
    .in_place = kSum,
    .sums_into = 3,
};

// adapter_outer_part(low, x, adapter, shape: sum) = adapter_outer of a sum of zeros: what a part of the tokens adds.
namespace adapter_outer_part {

constexpr std::string_view kName = "adapter_outer_part";

ShardingRule sharding(const OpView& view) {
  return make_rule(outer_rule(token_letters(view)), {{0}, {1}}, "ab");
}

}  // namespace adapter_outer_part

extern const OpDef kAdapterOuterPart = {
    .name = adapter_outer_part::kName,
    .infer = [](Types in, Attrs) { return infer_outer(adapter_outer_part::kName, in); },
    .sharding = adapter_outer_part::sharding,
    .cost = [](const OpView& view) { return traffic_cost(view, outer_flops(view), kSum); },
    .shape_only = kSum,
};

}  // namespace tessera
