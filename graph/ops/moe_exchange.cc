// Dispatch of tokens to the slots of their experts, and combination back. Slots are [E,
// B, S, C]. With the batch split over an axis on the tokens' side and the experts split
// over it on theirs, the change of layout is one all-to-all of whole slots. Used slots
// come first, the rest is zero; their number is another tensor (load of moe_route).
#include "graph/base/text.h"
#include "graph/ops/op_support.h"

namespace tessera {

using namespace ops;

namespace {

// Checks that operand i is slots [E, B, S, C] for the sequences [B, T, C] of `tokens` (operand j).
Status check_slots(std::string_view op, Types in, int i, std::string_view name) {
  TSR_RETURN_IF_ERROR(check_float(op, in, i, name));
  return check_rank(op, in, i, name, 4);
}

Status check_rows(std::string_view op, Types in, int i, std::string_view name) {
  TSR_RETURN_IF_ERROR(check_float(op, in, i, name));
  return check_rank(op, in, i, name, 3);
}

// token [E, B, S] i32
Status check_owners(std::string_view op, Types in, int i) {
  TSR_RETURN_IF_ERROR(check_rank(op, in, i, "token", 3));
  return check_indices(op, in, i, "token", in[static_cast<size_t>(i)].shape);
}

// expert, slot [B, T, K] i32 of slots [E, B, S, C]
Status check_choices(std::string_view op, Types in, int expert, int slot, int slots) {
  TSR_RETURN_IF_ERROR(check_rank(op, in, expert, "expert", 3));
  TSR_RETURN_IF_ERROR(check_extent(op, in, expert, "expert", 0, in[static_cast<size_t>(slots)].shape[1]));
  const Shape& choices = in[static_cast<size_t>(expert)].shape;
  TSR_RETURN_IF_ERROR(check_indices(op, in, expert, "expert", choices));
  return check_indices(op, in, slot, "slot", choices);
}

Status check_gate(std::string_view op, Types in, int i, DType dtype, int expert) {
  TSR_RETURN_IF_ERROR(check_dtype(op, in, i, "gate", dtype));
  return check_shape(op, in, i, "gate", in[static_cast<size_t>(expert)].shape);
}

// Number of elements moved for the [B, T, K] choices.
double moved(const TensorType& choices, const TensorType& rows) {
  return static_cast<double>(choices.shape.elements()) * static_cast<double>(last_extent(rows.shape));
}

}  // namespace

// moe_dispatch(x, token)[e, b, s] = x[b, token[e, b, s]], 0 for an absent token (-1, another shard)
//   x [B, T, C], token [E, B, S] i32 -> [E, B, S, C].  Linear in x; a shard of t makes an addend.
namespace moe_dispatch {

constexpr std::string_view kName = "moe_dispatch";

Inferred infer(Types in, Attrs) {
  TSR_RETURN_IF_ERROR(check_count(kName, in, 2));
  TSR_RETURN_IF_ERROR(check_rows(kName, in, 0, "x"));
  TSR_RETURN_IF_ERROR(check_owners(kName, in, 1));
  TSR_RETURN_IF_ERROR(check_extent(kName, in, 1, "token", 1, in[0].shape[0]));
  return std::vector<TensorType>{{in[0].dtype, with_last(in[1].shape, in[0].shape[2])}};
}

Status vjp(VjpBuilder& b) {
  const auto dy = b.output_grad(0);
  if (!dy) return {};
  return set_grad(b, 0, [&] { return b.emit("moe_dispatch_grad", {*dy, b.input(1), b.input(0)}); });
}

ShardingRule sharding(const OpView&) { return make_rule("btc,ebs->ebsc", {{0}}); }

OpCost cost(const OpView& view) { return traffic_cost(view, 0); }

}  // namespace moe_dispatch

extern const OpDef kMoeDispatch = {.name = moe_dispatch::kName,
                                   .infer = moe_dispatch::infer,
                                   .vjp = moe_dispatch::vjp,
                                   .sharding = moe_dispatch::sharding,
                                   .cost = moe_dispatch::cost};

// moe_dispatch_grad(dy, token)[b, t] = sum of dy[e, b, s] over the slots with token[e, b, s] = t, experts in
// order
//   dy [E, B, S, C], token [E, B, S] i32, shape of x [B, T, C] -> dx [B, T, C].  Linear in dy.
namespace moe_dispatch_grad {

constexpr std::string_view kName = "moe_dispatch_grad";
const int kShapeOnly[] = {2};

Inferred infer(Types in, Attrs) {
  TSR_RETURN_IF_ERROR(check_count(kName, in, 3));
  TSR_RETURN_IF_ERROR(check_slots(kName, in, 0, "dy"));
  TSR_RETURN_IF_ERROR(check_indices(kName, in, 1, "token", without_last(in[0].shape)));
  TSR_RETURN_IF_ERROR(check_dtype(kName, in, 2, "x", in[0].dtype));
  TSR_RETURN_IF_ERROR(check_rank(kName, in, 2, "x", 3));
  TSR_RETURN_IF_ERROR(check_extent(kName, in, 2, "x", 0, in[0].shape[1]));
  TSR_RETURN_IF_ERROR(check_extent(kName, in, 2, "x", 2, in[0].shape[3]));
  return std::vector<TensorType>{in[2]};
}

ShardingRule sharding(const OpView&) { return make_rule("ebsc,ebs,btc->btc", {{0}}); }

OpCost cost(const OpView& view) {
  return traffic_cost(view, static_cast<double>(view.inputs[0].shape.elements()), kShapeOnly);
}

}  // namespace moe_dispatch_grad

extern const OpDef kMoeDispatchGrad = {.name = moe_dispatch_grad::kName,
                                       .infer = moe_dispatch_grad::infer,
                                       .sharding = moe_dispatch_grad::sharding,
                                       .cost = moe_dispatch_grad::cost,
                                       .shape_only = moe_dispatch_grad::kShapeOnly};

// moe_combine(y, expert, slot, gate)[b, t] = sum_j gate[b, t, j] * y[expert[b, t, j], b, slot[b, t, j]];
// dropped choices (slot -1) add nothing
//   y [E, B, S, C], expert, slot [B, T, K] i32, gate [B, T, K] -> [B, T, C].  A shard of the experts makes an
//   addend.
namespace moe_combine {

constexpr std::string_view kName = "moe_combine";

Inferred infer(Types in, Attrs) {
  TSR_RETURN_IF_ERROR(check_count(kName, in, 4));
  TSR_RETURN_IF_ERROR(check_slots(kName, in, 0, "y"));
  TSR_RETURN_IF_ERROR(check_choices(kName, in, 1, 2, 0));
  TSR_RETURN_IF_ERROR(check_gate(kName, in, 3, in[0].dtype, 1));
  return std::vector<TensorType>{{in[0].dtype, with_last(without_last(in[1].shape), in[0].shape[3])}};
}

Status vjp(VjpBuilder& b) {
  const auto dz = b.output_grad(0);
  if (!dz) return {};
  TSR_RETURN_IF_ERROR(set_grad(b, 0, [&] {
    return b.emit("moe_combine_grad_input", {*dz, b.input(1), b.input(2), b.input(3), b.input(0)});
  }));
  return set_grad(b, 3, [&] {
    return b.emit("moe_combine_grad_gate", {b.input(0), b.input(1), b.input(2), *dz});
  });
}

ShardingRule sharding(const OpView&) { return make_rule("ebsc,btk,btk,btk->btc", {{0}, {3}}); }

OpCost cost(const OpView& view) { return traffic_cost(view, 2 * moved(view.inputs[1], view.inputs[0])); }

}  // namespace moe_combine

extern const OpDef kMoeCombine = {.name = moe_combine::kName,
                                  .infer = moe_combine::infer,
                                  .vjp = moe_combine::vjp,
                                  .sharding = moe_combine::sharding,
                                  .cost = moe_combine::cost};

// moe_combine_grad_input(dz, expert, slot, gate)[e, b, s] = gate[b, t, j] * dz[b, t] where choice j of token
// t has slot s of expert e; 0 for an empty slot. A slot has at most one owner.
//   dz [B, T, C], expert, slot [B, T, K] i32, gate [B, T, K], shape of y [E, B, S, C] -> dy [E, B, S, C]
namespace moe_combine_grad_input {

constexpr std::string_view kName = "moe_combine_grad_input";
const int kShapeOnly[] = {4};

Inferred infer(Types in, Attrs) {
  TSR_RETURN_IF_ERROR(check_count(kName, in, 5));
  TSR_RETURN_IF_ERROR(check_rows(kName, in, 0, "dz"));
  TSR_RETURN_IF_ERROR(check_slots(kName, in, 4, "y"));
  TSR_RETURN_IF_ERROR(check_choices(kName, in, 1, 2, 4));
  TSR_RETURN_IF_ERROR(check_gate(kName, in, 3, in[0].dtype, 1));
  TSR_RETURN_IF_ERROR(check_dtype(kName, in, 4, "y", in[0].dtype));
  TSR_RETURN_IF_ERROR(
      check_shape(kName, in, 0, "dz", with_last(without_last(in[1].shape), last_extent(in[4].shape))));
  return std::vector<TensorType>{in[4]};
}

ShardingRule sharding(const OpView&) { return make_rule("btc,btk,btk,btk,ebsc->ebsc", {{0}, {3}}); }

OpCost cost(const OpView& view) {
  return traffic_cost(view, moved(view.inputs[1], view.inputs[0]), kShapeOnly);
}

}  // namespace moe_combine_grad_input

extern const OpDef kMoeCombineGradInput = {.name = moe_combine_grad_input::kName,
                                           .infer = moe_combine_grad_input::infer,
                                           .sharding = moe_combine_grad_input::sharding,
                                           .cost = moe_combine_grad_input::cost,
                                           .shape_only = moe_combine_grad_input::kShapeOnly};

// moe_combine_grad_gate(y, expert, slot, dz)[b, t, j] = sum_c y[expert[b, t, j], b, slot[b, t, j], c] * dz[b,
// t, c], 0 for a dropped choice
//   y [E, B, S, C], expert, slot [B, T, K] i32, dz [B, T, C] -> dgate [B, T, K]
namespace moe_combine_grad_gate {

constexpr std::string_view kName = "moe_combine_grad_gate";

Inferred infer(Types in, Attrs) {
  TSR_RETURN_IF_ERROR(check_count(kName, in, 4));
  TSR_RETURN_IF_ERROR(check_slots(kName, in, 0, "y"));
  TSR_RETURN_IF_ERROR(check_choices(kName, in, 1, 2, 0));
  TSR_RETURN_IF_ERROR(check_dtype(kName, in, 3, "dz", in[0].dtype));
  TSR_RETURN_IF_ERROR(
      check_shape(kName, in, 3, "dz", with_last(without_last(in[1].shape), last_extent(in[0].shape))));
  return std::vector<TensorType>{{in[0].dtype, in[1].shape}};
}

ShardingRule sharding(const OpView&) { return make_rule("ebsc,btk,btk,btc->btk", {{0}, {3}}); }

OpCost cost(const OpView& view) { return traffic_cost(view, 2 * moved(view.inputs[1], view.inputs[0])); }

}  // namespace moe_combine_grad_gate

extern const OpDef kMoeCombineGradGate = {.name = moe_combine_grad_gate::kName,
                                          .infer = moe_combine_grad_gate::infer,
                                          .sharding = moe_combine_grad_gate::sharding,
                                          .cost = moe_combine_grad_gate::cost};

}  // namespace tessera
