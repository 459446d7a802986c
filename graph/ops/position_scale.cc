// position_scale(x, positions): x * (1 + beta * ln(1 + floor((position + offset) / context))): the temperature of queries far
// beyond the trained context ("Scalable-Softmax", Nakanishi, 2025; Llama 4, Ministral 3).
//   x [B, T, H, D], positions [B, T] i32 -> y [B, T, H, D].  Linear in x.
#include "graph/base/text.h"
#include "graph/ops/op_support.h"

namespace tessera {

using namespace ops;

namespace position_scale {

constexpr std::string_view kName = "position_scale";
const AttrSpec kAttrs[] = {
    {"beta", AttrType::kF64, 0.1, "factor of the logarithm"},
    {"context", AttrType::kI64, int64_t{8192}, "positions from one step of the scale to the next"},
    {"offset", AttrType::kI64, int64_t{0}, "added to positions"},
};

Inferred infer(Types in, Attrs attrs) {
  TSR_RETURN_IF_ERROR(check_count(kName, in, 2));
  TSR_RETURN_IF_ERROR(check_float(kName, in, 0, "x"));
  TSR_RETURN_IF_ERROR(check_rank(kName, in, 0, "x", 4));
  TSR_RETURN_IF_ERROR(check_indices(kName, in, 1, "positions", Shape{in[0].shape[0], in[0].shape[1]}));
  const int64_t context = attr_i64(attrs, "context"), offset = attr_i64(attrs, "offset");
  if (context < 1 || offset < 0)
    return Status(StatusCode::kInvalidArgument,
                  format("{}: context is {} and offset {}, wanted at least 1 and 0", kName, context, offset));
  return std::vector<TensorType>{in[0]};
}

Status vjp(VjpBuilder& b) {
  const auto dy = b.output_grad(0);
  if (!dy) return {};
  std::vector<Attr> attrs(b.attrs().begin(), b.attrs().end());
  return set_grad(b, 0, [&] { return b.emit(kName, {*dy, b.input(1)}, std::move(attrs)); });
}

ShardingRule sharding(const OpView&) { return make_rule("bthd,bt->bthd", {{0}}); }

}  // namespace position_scale

extern const OpDef kPositionScale = {.name = position_scale::kName,
                                     .attrs = position_scale::kAttrs,
                                     .infer = position_scale::infer,
                                     .vjp = position_scale::vjp,
                                     .sharding = position_scale::sharding,
                                     .cost = elementwise_cost<1>,
                                     .in_place = kInPlaceFirst};

}  // namespace tessera
