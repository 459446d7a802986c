// Softmax over the last dim and its gradient.
#include "graph/base/text.h"
#include "graph/ops/op_support.h"

namespace tessera {

using namespace ops;

// softmax(x)[..., c] = exp(x[..., c] - max_c x) / sum_c exp(x[..., c] - max_c x)
//   x [..., C] -> y [..., C].  c is replicated; cross_entropy has the phased form for a sharded vocabulary.
namespace softmax {

constexpr std::string_view kName = "softmax";

Inferred infer(Types in, Attrs) {
  TSR_RETURN_IF_ERROR(check_count(kName, in, 1));
  TSR_RETURN_IF_ERROR(check_float(kName, in, 0, "x"));
  TSR_RETURN_IF_ERROR(check_rank_at_least(kName, in, 0, "x", 1));
  return std::vector<TensorType>{in[0]};
}

Status vjp(VjpBuilder& b) {
  const auto dy = b.output_grad(0);
  if (!dy) return {};
  return set_grad(b, 0, [&] { return b.emit("softmax_grad", {b.output(0), *dy}); });
}

ShardingRule sharding(const OpView& view) {
  const std::string rows = leading_letters(view.inputs[0].shape.rank() - 1, "c");
  return make_rule(format("{}c->{}c", rows, rows), {}, "c");
}

OpCost cost(const OpView& view) { return elementwise_cost(view, 5); }

}  // namespace softmax

extern const OpDef kSoftmax = {
    .name = softmax::kName,
    .infer = softmax::infer,
    .vjp = softmax::vjp,
    .sharding = softmax::sharding,
    .cost = softmax::cost,
    .is_gate = true,
};

// dx = y * (dy - sum_c(dy * y))
//   y, dy [..., C] -> dx [..., C].  Linear in dy.
namespace softmax_grad {

constexpr std::string_view kName = "softmax_grad";

Inferred infer(Types in, Attrs) {
  TSR_RETURN_IF_ERROR(check_count(kName, in, 2));
  TSR_RETURN_IF_ERROR(check_float(kName, in, 0, "y"));
  TSR_RETURN_IF_ERROR(check_rank_at_least(kName, in, 0, "y", 1));
  TSR_RETURN_IF_ERROR(check_same_type(kName, in, 1, 0));
  return std::vector<TensorType>{in[0]};
}

ShardingRule sharding(const OpView& view) {
  const std::string rows = leading_letters(view.inputs[0].shape.rank() - 1, "c");
  return make_rule(format("{}c,{}c->{}c", rows, rows, rows), {{1}}, "c");
}

OpCost cost(const OpView& view) { return elementwise_cost(view, 4); }

}  // namespace softmax_grad

extern const OpDef kSoftmaxGrad = {.name = softmax_grad::kName,
                                   .infer = softmax_grad::infer,
                                   .sharding = softmax_grad::sharding,
                                   .cost = softmax_grad::cost};

}  // namespace tessera
