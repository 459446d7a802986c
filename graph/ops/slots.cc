// One slot of states that are stacked, such as the adapters of a batch and their optimizer's moments.
#include "graph/base/text.h"
#include "graph/ops/op_support.h"

namespace tessera {

using namespace ops;

namespace {

// Operand 0: states of S slots, of any type without blocks; operand `slot`: the number of one.
Status check_slots(std::string_view op, Types in, int slot) {
  TSR_RETURN_IF_ERROR(check_rank_at_least(op, in, 0, "state", 1));
  if (is_block_type(in[0].dtype))
    return Status(StatusCode::kInvalidArgument,
                  format("{}: operand 0 (state) is {}, wanted a type without blocks", op, in[0]));
  return check_indices(op, in, slot, "slot", Shape{});
}

Shape one_slot(Shape state) {
  state.set(0, 1);
  return state;
}

std::string letters_in_slot(const OpView& view) { return leading_letters(view.inputs[0].shape.rank() - 1, "s"); }

LinearSets linear_if_real(const OpView& view, std::vector<int> set) {
  return info(view.inputs[0].dtype).is_float ? LinearSets{std::move(set)} : LinearSets{};
}

}  // namespace

// take_slot(state, slot)[0, ...] = state[slot, ...], 0 where that slot is not there
//   state [S, ...] of any type without blocks, slot i32 [] -> [1, ...].  Linear in state. No gradient.
namespace take_slot {

constexpr std::string_view kName = "take_slot";

Inferred infer(Types in, Attrs) {
  TSR_RETURN_IF_ERROR(check_count(kName, in, 2));
  TSR_RETURN_IF_ERROR(check_slots(kName, in, 1));
  return std::vector<TensorType>{{in[0].dtype, one_slot(in[0].shape)}};
}

ShardingRule sharding(const OpView& view) {
  const std::string rest = letters_in_slot(view);
  return make_rule(format("s{},->1{}", rest, rest), linear_if_real(view, {0}), "s");
}

// Reads one slot.
OpCost cost(const OpView& view) {
  const auto moved = static_cast<double>(bytes(view.outputs[0]));
  return {.flops = 0, .bytes_read = moved, .bytes_written = moved};
}

}  // namespace take_slot

extern const OpDef kTakeSlot = {.name = take_slot::kName,
                                .infer = take_slot::infer,
                                .sharding = take_slot::sharding,
                                .cost = take_slot::cost};

// put_slot(state, value, slot): the state with value in place of slot `slot`; unchanged where that slot is not there
//   state [S, ...] of any type without blocks, value [1, ...] of its type, slot i32 [] -> state, in place.
//   Jointly linear in state and value. No gradient.
namespace put_slot {

constexpr std::string_view kName = "put_slot";

Inferred infer(Types in, Attrs) {
  TSR_RETURN_IF_ERROR(check_count(kName, in, 3));
  TSR_RETURN_IF_ERROR(check_slots(kName, in, 2));
  TSR_RETURN_IF_ERROR(check_dtype(kName, in, 1, "value", in[0].dtype));
  TSR_RETURN_IF_ERROR(check_shape(kName, in, 1, "value", one_slot(in[0].shape)));
  return std::vector<TensorType>{in[0]};
}

ShardingRule sharding(const OpView& view) {
  const std::string rest = letters_in_slot(view);
  return make_rule(format("s{},1{},->s{}", rest, rest, rest), linear_if_real(view, {0, 1}), "s");
}

// In place: one slot is moved.
OpCost cost(const OpView& view) {
  const auto moved = static_cast<double>(bytes(view.inputs[1]));
  return {.flops = 0, .bytes_read = moved, .bytes_written = moved};
}

}  // namespace put_slot

extern const OpDef kPutSlot = {.name = put_slot::kName,
                               .infer = put_slot::infer,
                               .sharding = put_slot::sharding,
                               .cost = put_slot::cost,
                               .in_place = kInPlaceFirst};

}  // namespace tessera
