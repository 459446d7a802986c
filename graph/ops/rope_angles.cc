// The two halves of rope (rope.cc), for graphs that rotate many tensors by the same positions: the angles are made
// once and read by each rotation. Results have the bits of rope.

#include "graph/base/text.h"
#include "graph/ops/op_support.h"

namespace tessera {

using namespace ops;

// rope_angles(positions): cosine and sine of the angles a = positions[b, t] * theta^(-2i/D) of the pairs i of a head
//   positions [B, T] i32 -> angles [B, T, D] f64: cosines in [0, D/2), sines in [D/2, D).
namespace rope_angles {

constexpr std::string_view kName = "rope_angles";
const AttrSpec kAttrs[] = {
    {"theta", AttrType::kF64, 10000.0, "base of the wave lengths"},
    {"head_size", AttrType::kI64, std::nullopt, "D, even"},
};

Inferred infer(Types in, Attrs attrs) {
  TSR_RETURN_IF_ERROR(check_count(kName, in, 1));
  TSR_RETURN_IF_ERROR(check_rank(kName, in, 0, "positions", 2));
  TSR_RETURN_IF_ERROR(check_indices(kName, in, 0, "positions", in[0].shape));
  const int64_t head_size = attr_i64(attrs, "head_size");
  if (head_size < 0 || head_size % 2 != 0)
    return Status(StatusCode::kInvalidArgument,
                  format("{}: head_size is {}, wanted an even number", kName, head_size));
  const double theta = attr_f64(attrs, "theta");
  if (!(theta > 0))
    return Status(StatusCode::kInvalidArgument, format("{}: theta is {}, wanted more than 0", kName, theta));
  return std::vector<TensorType>{{DType::kF64, with_last(in[0].shape, head_size)}};
}

ShardingRule sharding(const OpView&) { return make_rule("bt->btd", {}, "d"); }

// A power, a cosine and a sine.
OpCost cost(const OpView& view) { return elementwise_cost(view, 40); }

}  // namespace rope_angles

extern const OpDef kRopeAngles = {.name = rope_angles::kName,
                                  .attrs = rope_angles::kAttrs,
                                  .infer = rope_angles::infer,
                                  .sharding = rope_angles::sharding,
                                  .cost = rope_angles::cost};

// rope_rotate(x, angles): the pair (u, v) number i of a head is rotated:  u' = u cos a - v sin a,
// v' = u sin a + v cos a
//   x [B, T, H, D] with even D, angles [B, T, D] f64 -> y [B, T, H, D].  Linear in x.  For decoding: no gradient.
namespace rope_rotate {

constexpr std::string_view kName = "rope_rotate";
const AttrSpec kAttrs[] = {
    {"style", AttrType::kString, std::string("half"),
     "pair i is (i, i + D/2): half; (2i, 2i + 1): interleaved"},
    {"inverse", AttrType::kI64, int64_t{0}, "1: turn back"},
};

Inferred infer(Types in, Attrs attrs) {
  TSR_RETURN_IF_ERROR(check_count(kName, in, 2));
  TSR_RETURN_IF_ERROR(check_float(kName, in, 0, "x"));
  TSR_RETURN_IF_ERROR(check_rank(kName, in, 0, "x", 4));
  const int64_t head_size = in[0].shape[3];
  if (is_symbol(head_size) || head_size % 2 != 0)
    return Status(StatusCode::kInvalidArgument,
                  format("{}: operand 0 (x) is {}, wanted an even number in dim 3", kName, in[0]));
  TSR_RETURN_IF_ERROR(check_dtype(kName, in, 1, "angles", DType::kF64));
  TSR_RETURN_IF_ERROR(check_shape(kName, in, 1, "angles", Shape{in[0].shape[0], in[0].shape[1], head_size}));
  const std::string& style = attr_string(attrs, "style");
  if (style != "half" && style != "interleaved")
    return Status(StatusCode::kInvalidArgument,
                  format("{}: style is '{}', wanted 'half' or 'interleaved'", kName, style));
  return std::vector<TensorType>{in[0]};
}

ShardingRule sharding(const OpView&) { return make_rule("bthd,btd->bthd", {{0}}, "d"); }

OpCost cost(const OpView& view) { return elementwise_cost(view, 3); }

}  // namespace rope_rotate

extern const OpDef kRopeRotate = {.name = rope_rotate::kName,
                                  .attrs = rope_rotate::kAttrs,
                                  .infer = rope_rotate::infer,
                                  .sharding = rope_rotate::sharding,
                                  .cost = rope_rotate::cost,
                                  .in_place = kInPlaceFirst};

}  // namespace tessera
