// Clipping by the global norm, in two ops: the sum of squares of each gradient may be a partial sum over
// shards; the scale needs the whole.
#include "graph/base/text.h"
#include "graph/ops/op_support.h"

namespace tessera {

using namespace ops;

// --- sum_squares(x) = sum over all elements of x^2:  x [d0, ..., dn] -> [] (f64 in an f64 graph, else f32)

namespace {
Inferred squares_infer(Types in, Attrs) {
  TSR_RETURN_IF_ERROR(check_count("sum_squares", in, 1));
  TSR_RETURN_IF_ERROR(check_float("sum_squares", in, 0, "x"));
  return std::vector<TensorType>{{statistics_dtype(in[0].dtype), Shape{}}};
}

// dx = 2 x dy
Status squares_vjp(VjpBuilder& b) {
  const auto dy = b.output_grad(0);
  if (!dy) return {};
  return set_grad(b, 0, [&]() -> Result<TensorId> {
    TSR_ASSIGN_OR_RETURN(const TensorId twice, b.emit("scale", {*dy}, {{"factor", 2.0}}));
    return b.emit("scale_by", {b.input(0), twice});
  });
}
}  // namespace

extern const OpDef kSumSquares = {
    .name = "sum_squares",
    .infer = squares_infer,
    .vjp = squares_vjp,
    .sharding = [](const OpView& v) { return pointwise_rule(v); },
    .cost =
        [](const OpView& v) {
          return traffic_cost(v, 2 * static_cast<double>(v.inputs[0].shape.elements()));
        },
    .algebra = Algebra::kSumOfSquares,
};

// --- clip_scale(s, loss_scale, max_norm): norm = sqrt(s) / loss_scale, scale = min(1, max_norm / (norm + 1e-6)) /
// loss_scale
//     s [], loss_scale [] optional (else 1): what the gradients were multiplied by -> scale [], norm []
//     max_norm f64 [], with attribute by_step = 1: of one step, in place of the attribute
//     A norm that is not finite makes the scale 0, which the optimizers take as "leave everything as it is".

namespace {
const AttrSpec kClipAttrs[] = {
    {"max_norm", AttrType::kF64, std::nullopt, "norm above which gradients are scaled down to it"},
    {.name = "by_step",
     .type = AttrType::kI64,
     .default_value = AttrValue(int64_t{0}),
     .meaning = "1: the last operand is max_norm",
     .is_late = true},
};

Inferred clip_infer(Types in, Attrs attrs) {
  TSR_RETURN_IF_ERROR(check_flag("clip_scale", attrs, "by_step"));
  if (attr_i64(attrs, "by_step") == 1) {
    TSR_RETURN_IF_ERROR(check_count("clip_scale", in, 2, 3));
    const int last = static_cast<int>(in.size()) - 1;
    TSR_RETURN_IF_ERROR(check_dtype("clip_scale", in, last, "max_norm", DType::kF64));
    TSR_RETURN_IF_ERROR(check_shape("clip_scale", in, last, "max_norm", Shape{}));
    in = in.first(static_cast<size_t>(last));
  }
  TSR_RETURN_IF_ERROR(check_count("clip_scale", in, 1, 2));
  TSR_RETURN_IF_ERROR(check_float("clip_scale", in, 0, "sum of squares"));
  TSR_RETURN_IF_ERROR(check_shape("clip_scale", in, 0, "sum of squares", Shape{}));
  if (in.size() > 1) TSR_RETURN_IF_ERROR(check_same_type("clip_scale", in, 0, 1));
  const double max_norm = attr_f64(attrs, "max_norm");
  if (!(max_norm > 0))
    return Status(StatusCode::kInvalidArgument,
                  format("clip_scale: max_norm is {}, wanted more than 0", max_norm));
  return std::vector<TensorType>{in[0], in[0]};
}
}  // namespace

extern const OpDef kClipScale = {
    .name = "clip_scale",
    .attrs = kClipAttrs,
    .infer = clip_infer,
    .sharding = [](const OpView& v) { return pointwise_rule(v); },
    .cost = elementwise_cost<8>,
};

}  // namespace tessera
