// Vectors of one length: l2_norm and its gradient.
#include "graph/base/text.h"
#include "graph/ops/op_support.h"

namespace tessera {

using namespace ops;

namespace {

const AttrSpec kL2Attrs[] = {
    {"eps", AttrType::kF64, 1e-6, "added to the sum of squares"},
    {"scale", AttrType::kF64, 1.0, "factor of the result"},
};

std::string rows_of(Types in) { return leading_letters(in[0].shape.rank() - 1, "c"); }

Status check_l2_operands(std::string_view op, Types in, Attrs attrs, int count) {
  TSR_RETURN_IF_ERROR(check_range(op, attrs, "eps", 0, kUnbounded));
  TSR_RETURN_IF_ERROR(check_count(op, in, count));
  TSR_RETURN_IF_ERROR(check_float(op, in, 0, count == 1 ? "x" : "dy"));
  return check_rank_at_least(op, in, 0, count == 1 ? "x" : "dy", 1);
}

}  // namespace

// l2_norm(x)[..., c] = scale * x[..., c] * r[...],  r = 1 / sqrt(sum_c x^2 + eps)
//   x [..., C] -> y the same
namespace l2_norm {

constexpr std::string_view kName = "l2_norm";

Inferred infer(Types in, Attrs attrs) {
  TSR_RETURN_IF_ERROR(check_l2_operands(kName, in, attrs, 1));
  return std::vector<TensorType>{in[0]};
}

Status vjp(VjpBuilder& b) {
  const auto dy = b.output_grad(0);
  if (!dy) return {};
  return set_grad(b, 0, [&] {
    return b.emit("l2_norm_grad", {*dy, b.input(0)}, {b.attrs().begin(), b.attrs().end()});
  });
}

ShardingRule sharding(const OpView& view) {
  const std::string rows = rows_of(view.inputs);
  return make_rule(format("{}c->{}c", rows, rows), {}, "c");
}

}  // namespace l2_norm

extern const OpDef kL2Norm = {.name = l2_norm::kName,
                              .attrs = kL2Attrs,
                              .infer = l2_norm::infer,
                              .vjp = l2_norm::vjp,
                              .sharding = l2_norm::sharding,
                              .cost = elementwise_cost<3>,
                              .in_place = kInPlaceFirst};

// l2_norm_grad(dy, x) -> dx = scale * r * (dy - x * r^2 * sum_c dy * x).  Linear in dy.
namespace l2_norm_grad {

constexpr std::string_view kName = "l2_norm_grad";

Inferred infer(Types in, Attrs attrs) {
  TSR_RETURN_IF_ERROR(check_l2_operands(kName, in, attrs, 2));
  TSR_RETURN_IF_ERROR(check_same_type(kName, in, 1, 0));
  return std::vector<TensorType>{in[0]};
}

ShardingRule sharding(const OpView& view) {
  const std::string rows = rows_of(view.inputs);
  return make_rule(format("{}c,{}c->{}c", rows, rows, rows), {{0}}, "c");
}

}  // namespace l2_norm_grad

extern const OpDef kL2NormGrad = {.name = l2_norm_grad::kName,
                                  .attrs = kL2Attrs,
                                  .infer = l2_norm_grad::infer,
                                  .sharding = l2_norm_grad::sharding,
                                  .cost = elementwise_cost<7>,
                                  .in_place = kInPlaceFirst};

}  // namespace tessera
