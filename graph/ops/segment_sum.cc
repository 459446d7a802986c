// Sums over the documents of a row.
#include "graph/base/text.h"
#include "graph/ops/op_support.h"

namespace tessera {

using namespace ops;

// segment_sum(x, segments)[..., t] = sum of x[..., u] over all u with segments[..., u] = segments[..., t]
//   x [..., T], segments [..., T] i32 -> y [..., T].  Linear in x, and its own gradient.
namespace segment_sum {

constexpr std::string_view kName = "segment_sum";

Inferred infer(Types in, Attrs) {
  TSR_RETURN_IF_ERROR(check_count(kName, in, 2));
  TSR_RETURN_IF_ERROR(check_float(kName, in, 0, "x"));
  TSR_RETURN_IF_ERROR(check_rank_at_least(kName, in, 0, "x", 1));
  TSR_RETURN_IF_ERROR(check_indices(kName, in, 1, "segments", in[0].shape));
  return std::vector<TensorType>{in[0]};
}

Status vjp(VjpBuilder& b) {
  const auto dy = b.output_grad(0);
  if (!dy) return {};
  return set_grad(b, 0, [&] { return b.emit("segment_sum", {*dy, b.input(1)}); });
}

ShardingRule sharding(const OpView& view) {
  const std::string rows = leading_letters(view.inputs[0].shape.rank() - 1, "t");
  return make_rule(format("{}t,{}t->{}t", rows, rows, rows), {{0}}, "t");
}

OpCost cost(const OpView& view) { return elementwise_cost(view, 2); }

}  // namespace segment_sum

extern const OpDef kSegmentSum = {
    .name = segment_sum::kName,
    .infer = segment_sum::infer,
    .vjp = segment_sum::vjp,
    .sharding = segment_sum::sharding,
    .cost = segment_sum::cost,
};

}  // namespace tessera
