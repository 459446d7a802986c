// 8-bit floats with one scale a tensor (graph/base/fp8.h), in two ops: the scale is that of the whole tensor,
// a maximum over its shards; quantize then works on each shard.
#include <string>

#include "graph/base/fp8.h"
#include "graph/base/text.h"
#include "graph/ops/op_support.h"

namespace tessera {

using namespace ops;

namespace {
const AttrSpec kAttrs[] = {
    {"dtype", AttrType::kString, AttrValue(std::string("e4m3")), "e4m3 or e5m2: of the codes"},
};

Result<DType> code_dtype(std::string_view op, Attrs attrs) {
  const std::string& name = attr_string(attrs, "dtype");
  const std::optional<DType> dtype = dtype_from_name(name);
  if (dtype && is_fp8(*dtype)) return *dtype;
  return Status(StatusCode::kInvalidArgument, format("{}: dtype is '{}', wanted e4m3 or e5m2", op, name));
}
}  // namespace

// --- quantize_scale(x) = the least power of two s with |x| / s <= the largest number of `dtype`, for all
// elements
//     infinity where one of them is not finite; 2^-126 for zeros and for an empty tensor.
//     x [d0, ..., dn] -> [] (f64 in an f64 graph, else f32)

namespace {
Inferred scale_infer(Types in, Attrs attrs) {
  TSR_RETURN_IF_ERROR(check_count("quantize_scale", in, 1));
  TSR_RETURN_IF_ERROR(check_float("quantize_scale", in, 0, "x"));
  TSR_RETURN_IF_ERROR(code_dtype("quantize_scale", attrs).status());
  return std::vector<TensorType>{{statistics_dtype(in[0].dtype), Shape{}}};
}

// The scale never falls as elements grow, so the largest of the shards' scales is that of the whole.
ShardingRule scale_sharding(const OpView& view) {
  ShardingRule rule = pointwise_rule(view);
  for (Factor& factor : rule.factors) factor.reduce = ReduceKind::kMax;
  return rule;
}
}  // namespace

extern const OpDef kQuantizeScale = {
    .name = "quantize_scale",
    .attrs = kAttrs,
    .infer = scale_infer,
    .sharding = scale_sharding,
    .cost =
        [](const OpView& v) { return traffic_cost(v, static_cast<double>(v.inputs[0].shape.elements())); },
    .any_part = true,
};

// --- quantize(x, scale) = the codes of x / scale: nearest, ties to even, saturating; NaN stays NaN
//     x [d0, ..., dn], scale [] -> codes [d0, ..., dn] of `dtype`

namespace {
Inferred quantize_infer(Types in, Attrs attrs) {
  TSR_RETURN_IF_ERROR(check_count("quantize", in, 2));
  TSR_RETURN_IF_ERROR(check_float("quantize", in, 0, "x"));
  TSR_RETURN_IF_ERROR(check_dtype("quantize", in, 1, "scale", statistics_dtype(in[0].dtype)));
  TSR_RETURN_IF_ERROR(check_shape("quantize", in, 1, "scale", Shape{}));
  TSR_ASSIGN_OR_RETURN(const DType dtype, code_dtype("quantize", attrs));
  return std::vector<TensorType>{{dtype, in[0].shape}};
}
}  // namespace

extern const OpDef kQuantize = {
    .name = "quantize",
    .attrs = kAttrs,
    .infer = quantize_infer,
    .sharding = [](const OpView& v) { return pointwise_rule(v); },
    .cost = elementwise_cost<2>,
};

}  // namespace tessera
