// The two halves of rope (rope.cc), for graphs that rotate many tensors by the same positions, that scale their
// frequencies, or that rotate a part of a head: the angles are made once and read by each rotation. Without factors and
// magnitude results have the bits of rope.
#include <algorithm>

#include "graph/base/text.h"
#include "graph/ops/op_support.h"
#include "graph/serving_builder.h"

namespace tessera {

using namespace ops;

// rope_angles(positions, factors): cosine and sine, times `magnitude`, of the angles
// a = positions[b, t] * theta^(-2i/R) / factors[n, i] of the pairs i of a head's rotated part
//   positions [B, T] i32, factors [N, R/2] f32 or f64, optional (1 everywhere): N is 1, or 2 with `switch_at`
//   -> angles [B, T, R] f64: cosines in [0, R/2), sines in [R/2, R).
//   Linear scaling, llama3 and yarn are factors of one row; longrope has two, of which a sequence (row b) takes the
//   second where its largest position here is at least `switch_at`.  Factors are constants: they do not train.
namespace rope_angles {

constexpr std::string_view kName = "rope_angles";
const AttrSpec kAttrs[] = {
    {"theta", AttrType::kF64, 10000.0, "base of the wave lengths"},
    {"head_size", AttrType::kI64, std::nullopt, "R, the part of a head that is rotated, even"},
    {.name = "magnitude",
     .type = AttrType::kF64,
     .default_value = AttrValue(1.0),
     .meaning = "factor of cosines and sines",
     .is_late = true},
    {.name = "switch_at",
     .type = AttrType::kI64,
     .default_value = AttrValue(int64_t{0}),
     .meaning = "sequences with a position from here on take the second row of factors; 0: there is one row",
     .is_late = true},
};

Status check_factors(Types in, Attrs attrs) {
  const int64_t switch_at = attr_i64(attrs, "switch_at"), pairs = attr_i64(attrs, "head_size") / 2;
  if (switch_at < 0)
    return Status(StatusCode::kInvalidArgument,
                  format("{}: switch_at is {}, wanted a position, or 0", kName, switch_at));
  if (in.size() < 2) {
    if (switch_at == 0) return {};
    return Status(StatusCode::kInvalidArgument,
                  format("{}: switch_at is {} without factors, wanted two rows of them", kName, switch_at));
  }
  if (in[1].dtype != DType::kF64) TSR_RETURN_IF_ERROR(check_dtype(kName, in, 1, "factors", DType::kF32));
  const Shape wanted{switch_at > 0 ? 2 : 1, pairs};
  if (in[1].shape == wanted) return {};
  return Status(
      StatusCode::kInvalidArgument,
      format("{}: operand 1 (factors) has shape [{}], wanted [{}]: head_size / 2 columns, and two rows "
             "where switch_at (here {}) is above 0",
             kName, in[1].shape, wanted, switch_at));
}

Inferred infer(Types in, Attrs attrs) {
  TSR_RETURN_IF_ERROR(check_count(kName, in, 1, 2));
  TSR_RETURN_IF_ERROR(check_rank(kName, in, 0, "positions", 2));
  TSR_RETURN_IF_ERROR(check_indices(kName, in, 0, "positions", in[0].shape));
  const int64_t head_size = attr_i64(attrs, "head_size");
  if (head_size < 0 || head_size % 2 != 0)
    return Status(StatusCode::kInvalidArgument,
                  format("{}: head_size is {}, wanted an even number", kName, head_size));
  const double theta = attr_f64(attrs, "theta");
  if (!(theta > 0))
    return Status(StatusCode::kInvalidArgument, format("{}: theta is {}, wanted more than 0", kName, theta));
  TSR_RETURN_IF_ERROR(check_factors(in, attrs));
  return std::vector<TensorType>{{DType::kF64, with_last(in[0].shape, head_size)}};
}

Status vjp(VjpBuilder& b) {
  if (b.input_count() < 2 || !b.output_grad(0) || !b.needs_grad(1)) return {};
  return Status(StatusCode::kFailedPrecondition, format("{}: factors do not train: freeze them", kName));
}

// With two rows of factors the largest position of a whole sequence decides.
ShardingRule sharding(const OpView& view) {
  if (view.inputs.size() < 2) return make_rule("bt->btd", {}, "d");
  const bool switches = attr_i64(view.attrs, "switch_at") > 0;
  return make_rule("bt,nf->btd", {}, switches ? "nfdt" : "nfd");
}

// A power, a cosine and a sine.
OpCost cost(const OpView& view) { return elementwise_cost(view, 40); }

// With two rows of factors, all tokens of a step are rotated by the same one.
Status serve(ServingBuilder& b) {
  const int64_t switch_at = attr_i64(b.attrs(), "switch_at");
  if (switch_at == 0) return b.copy();
  std::vector<Attr> attrs(b.attrs().begin(), b.attrs().end());
  std::ranges::find(attrs, "switch_at", &Attr::name)->value = int64_t{0};
  TSR_ASSIGN_OR_RETURN(const TensorId factors, b.select_by_length(1, switch_at));
  TSR_ASSIGN_OR_RETURN(const std::vector<TensorId> angles,
                       b.emit(kName, {b.input(0), factors}, std::move(attrs)));
  b.set_output(0, angles[0]);
  return {};
}

}  // namespace rope_angles

extern const OpDef kRopeAngles = {
    .name = rope_angles::kName,
    .attrs = rope_angles::kAttrs,
    .infer = rope_angles::infer,
    .vjp = rope_angles::vjp,
    .sharding = rope_angles::sharding,
    .cost = rope_angles::cost,
    .serve = rope_angles::serve,
    .constant_input = 1,
    .is_shared = true,
};

// rope_rotate(x, angles): the pair (u, v) number i of the first R elements of a head is rotated:
// u' = u cos a - v sin a,  v' = u sin a + v cos a;  the elements from R on are passed on
//   x [B, T, H, D], angles [B, T, R] f64 with even R <= D -> y [B, T, H, D].  Linear in x; there
//   is no gradient for angles.
namespace rope_rotate {

constexpr std::string_view kName = "rope_rotate";
const AttrSpec kAttrs[] = {
    {"style", AttrType::kString, std::string("half"),
     "pair i is (i, i + R/2): half; (2i, 2i + 1): interleaved"},
    {"inverse", AttrType::kI64, int64_t{0}, "1: turn back, which is also the gradient"},
};

Inferred infer(Types in, Attrs attrs) {
  TSR_RETURN_IF_ERROR(check_count(kName, in, 2));
  TSR_RETURN_IF_ERROR(check_float(kName, in, 0, "x"));
  TSR_RETURN_IF_ERROR(check_rank(kName, in, 0, "x", 4));
  TSR_RETURN_IF_ERROR(check_rank(kName, in, 1, "angles", 3));
  TSR_RETURN_IF_ERROR(check_dtype(kName, in, 1, "angles", DType::kF64));
  const int64_t head_size = in[0].shape[3], rotated = in[1].shape[2];
  TSR_RETURN_IF_ERROR(check_shape(kName, in, 1, "angles", Shape{in[0].shape[0], in[0].shape[1], rotated}));
  if (is_symbol(head_size) || is_symbol(rotated) || rotated % 2 != 0 || rotated > head_size)
    return Status(
        StatusCode::kInvalidArgument,
        format("{}: operand 1 (angles) is {}, wanted an even number in dim 2, at most that of dim 3 of "
               "operand 0 (x), {}",
               kName, in[1], in[0]));
  const std::string& style = attr_string(attrs, "style");
  if (style != "half" && style != "interleaved")
    return Status(StatusCode::kInvalidArgument,
                  format("{}: style is '{}', wanted 'half' or 'interleaved'", kName, style));
  return std::vector<TensorType>{in[0]};
}

Status vjp(VjpBuilder& b) {
  const auto dy = b.output_grad(0);
  if (!dy) return {};
  if (b.needs_grad(1))
    return Status(StatusCode::kFailedPrecondition,
                  format("{}: angles are not differentiated: freeze what they are made of", kName));
  std::vector<Attr> attrs(b.attrs().begin(), b.attrs().end());
  const auto inverse = std::ranges::find(attrs, "inverse", &Attr::name);
  inverse->value = int64_t{1} - attr_i64(attrs, "inverse");
  return set_grad(b, 0, [&] { return b.emit(kName, {*dy, b.input(1)}, std::move(attrs)); });
}

ShardingRule sharding(const OpView& view) {
  if (last_extent(view.inputs[1].shape) == last_extent(view.inputs[0].shape))
    return make_rule("bthd,btd->bthd", {{0}}, "d");
  return make_rule("bthd,btr->bthd", {{0}}, "dr");
}

OpCost cost(const OpView& view) { return elementwise_cost(view, 3); }

}  // namespace rope_rotate

extern const OpDef kRopeRotate = {.name = rope_rotate::kName,
                                  .attrs = rope_rotate::kAttrs,
                                  .infer = rope_rotate::infer,
                                  .vjp = rope_rotate::vjp,
                                  .sharding = rope_rotate::sharding,
                                  .cost = rope_rotate::cost,
                                  .in_place = kInPlaceFirst};

}  // namespace tessera
