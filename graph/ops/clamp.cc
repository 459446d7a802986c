// clamp(x) = min(max(x, min), max), element by element; NaN stays NaN.
// clamp_grad(x, dy) = dy where min <= x <= max, else 0.
#include "graph/base/text.h"
#include "graph/ops/op_support.h"

namespace tessera {

using namespace ops;

namespace {

const AttrSpec kAttrs[] = {
    {"min", AttrType::kF64, AttrValue(-kUnbounded), "least value; -1e300: no bound"},
    {"max", AttrType::kF64, AttrValue(kUnbounded), "largest value; 1e300: no bound"},
};

Status check_bounds(std::string_view op, Attrs attrs) {
  const double least = attr_f64(attrs, "min"), most = attr_f64(attrs, "max");
  if (least <= most) return {};
  return Status(StatusCode::kInvalidArgument,
                format("{}: min is {}, max is {}, wanted min <= max", op, least, most));
}

Inferred clamp_infer(Types in, Attrs attrs) {
  TSR_RETURN_IF_ERROR(check_count("clamp", in, 1));
  TSR_RETURN_IF_ERROR(check_float("clamp", in, 0, "x"));
  TSR_RETURN_IF_ERROR(check_bounds("clamp", attrs));
  return std::vector<TensorType>{in[0]};
}

Inferred clamp_grad_infer(Types in, Attrs attrs) {
  TSR_RETURN_IF_ERROR(check_count("clamp_grad", in, 2));
  TSR_RETURN_IF_ERROR(check_float("clamp_grad", in, 0, "x"));
  TSR_RETURN_IF_ERROR(check_same_type("clamp_grad", in, 0, 1));
  TSR_RETURN_IF_ERROR(check_bounds("clamp_grad", attrs));
  return std::vector<TensorType>{in[0]};
}

Status clamp_vjp(VjpBuilder& b) {
  const auto dy = b.output_grad(0);
  if (!dy) return {};
  return set_grad(b, 0, [&] {
    return b.emit("clamp_grad", {b.input(0), *dy}, {b.attrs().begin(), b.attrs().end()});
  });
}

}  // namespace

extern const OpDef kClamp = {.name = "clamp",
                             .attrs = kAttrs,
                             .infer = clamp_infer,
                             .vjp = clamp_vjp,
                             .sharding = [](const OpView& view) { return pointwise_rule(view); },
                             .cost = elementwise_cost<2>,
                             .in_place = kInPlaceFirst};

extern const OpDef kClampGrad = {.name = "clamp_grad",
                                 .attrs = kAttrs,
                                 .infer = clamp_grad_infer,
                                 .sharding = [](const OpView& view) { return pointwise_rule(view, {{1}}); },
                                 .cost = elementwise_cost<2>,
                                 .in_place = kInPlaceFirst};

}  // namespace tessera
