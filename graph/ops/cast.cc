// cast(x): the same values in another element type.  x [d0, ..., dn] -> y the same shape
//   To a float type: nearest, ties to even. From float to integer: towards zero, what is out of range becomes
//   the nearest end of it and NaN becomes 0.
#include "graph/base/fp8.h"
#include "graph/base/text.h"
#include "graph/ops/op_support.h"

namespace tessera {

using namespace ops;

namespace {
const AttrSpec kAttrs[] = {
    {"dtype", AttrType::kString, std::nullopt, "f32, f64, f16, bf16, i32, i64, i8, u8"},
};

bool between_floats(Types in, Attrs attrs) {
  return info(in[0].dtype).is_float && info(*dtype_from_name(attr_string(attrs, "dtype"))).is_float;
}

Inferred infer(Types in, Attrs attrs) {
  TSR_RETURN_IF_ERROR(check_count("cast", in, 1));
  const std::string& name = attr_string(attrs, "dtype");
  const std::optional<DType> dtype = dtype_from_name(name);
  // 8-bit floats need a scale, which quantize makes.
  if (!dtype || info(*dtype).block_elements != 1 || is_fp8(*dtype))
    return Status(StatusCode::kInvalidArgument,
                  format("cast: dtype is '{}', wanted one of f32, f64, f16, bf16, i32, i64, i8, u8", name));
  if (info(in[0].dtype).block_elements != 1 || is_fp8(in[0].dtype))
    return Status(StatusCode::kInvalidArgument,
                  format("cast: operand 0 (x) is {}, wanted a type without blocks or scales", in[0]));
  return std::vector<TensorType>{{*dtype, in[0].shape}};
}

Status vjp(VjpBuilder& b) {
  const auto dy = b.output_grad(0);
  const std::vector<TensorType> in = {b.input_type(0)};
  if (!dy || !between_floats(in, b.attrs())) return {};
  return set_grad(b, 0, [&] { return b.emit("cast", {*dy}, {{"dtype", to_text(in[0].dtype)}}); });
}

// An addend may be cast before the sum is formed: the error is of the order of one rounding an addend.
ShardingRule sharding(const OpView& view) {
  return pointwise_rule(view, between_floats(view.inputs, view.attrs) ? LinearSets{{0}} : LinearSets{});
}
}  // namespace

extern const OpDef kCast = {
    .name = "cast",
    .attrs = kAttrs,
    .infer = infer,
    .vjp = vjp,
    .sharding = sharding,
    .cost = elementwise_cost<1>,
    .is_cast = true,
};

}  // namespace tessera
