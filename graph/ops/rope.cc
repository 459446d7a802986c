// rope(x, positions): rotary position embedding (Su et al., 2021). The pair (u, v) number i of a head is
// rotated by the angle a = positions[b, t] * theta^(-2i/D):  u' = u cos a - v sin a,  v' = u sin a + v cos a
//   x [B, T, H, D] with even D, positions [B, T] i32 -> y [B, T, H, D].  Linear in x.
#include <algorithm>

#include "graph/base/text.h"
#include "graph/ops/op_support.h"

namespace tessera {

using namespace ops;

namespace rope {

constexpr std::string_view kName = "rope";
const AttrSpec kAttrs[] = {
    {"theta", AttrType::kF64, 10000.0, "base of the wave lengths"},
    {"style", AttrType::kString, std::string("half"),
     "pair i is (i, i + D/2): half; (2i, 2i + 1): interleaved"},
    {"inverse", AttrType::kI64, int64_t{0}, "1: turn back, which is also the gradient"},
};

Inferred infer(Types in, Attrs attrs) {
  TSR_RETURN_IF_ERROR(check_count(kName, in, 2));
  TSR_RETURN_IF_ERROR(check_float(kName, in, 0, "x"));
  TSR_RETURN_IF_ERROR(check_rank(kName, in, 0, "x", 4));
  TSR_RETURN_IF_ERROR(check_indices(kName, in, 1, "positions", Shape{in[0].shape[0], in[0].shape[1]}));
  const int64_t head_size = in[0].shape[3];
  if (is_symbol(head_size) || head_size % 2 != 0)
    return Status(StatusCode::kInvalidArgument,
                  format("{}: operand 0 (x) is {}, wanted an even number in dim 3", kName, in[0]));
  const std::string& style = attr_string(attrs, "style");
  if (style != "half" && style != "interleaved")
    return Status(StatusCode::kInvalidArgument,
                  format("{}: style is '{}', wanted 'half' or 'interleaved'", kName, style));
  const double theta = attr_f64(attrs, "theta");
  if (!(theta > 0))
    return Status(StatusCode::kInvalidArgument, format("{}: theta is {}, wanted more than 0", kName, theta));
  return std::vector<TensorType>{in[0]};
}

Status vjp(VjpBuilder& b) {
  const auto dy = b.output_grad(0);
  if (!dy) return {};
  std::vector<Attr> attrs(b.attrs().begin(), b.attrs().end());
  const auto inverse = std::ranges::find(attrs, "inverse", &Attr::name);
  inverse->value = int64_t{1} - attr_i64(attrs, "inverse");
  return set_grad(b, 0, [&] { return b.emit(kName, {*dy, b.input(1)}, std::move(attrs)); });
}

ShardingRule sharding(const OpView&) { return make_rule("bthd,bt->bthd", {{0}}, "d"); }

OpCost cost(const OpView& view) { return elementwise_cost(view, 3); }

}  // namespace rope

extern const OpDef kRope = {.name = rope::kName,
                            .attrs = rope::kAttrs,
                            .infer = rope::infer,
                            .vjp = rope::vjp,
                            .sharding = rope::sharding,
                            .cost = rope::cost,
                            .in_place = kInPlaceFirst};

}  // namespace tessera
