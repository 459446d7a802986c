#include "graph/ops/product_support.h"

#include "graph/base/text.h"

namespace tessera::ops {

Status check_flag(std::string_view op, Attrs attrs, std::string_view name) {
  const int64_t value = attr_i64(attrs, name);
  if (value == 0 || value == 1) return {};
  return Status(StatusCode::kInvalidArgument, format("{}: {} is {}, wanted 0 or 1", op, name, value));
}

AttrSpec allow_tf32_spec() {
  return {.name = "allow_tf32",
          .type = AttrType::kI64,
          .default_value = AttrValue(int64_t{0}),
          .meaning = "1: f32 operands may be rounded to TF32 before they are multiplied",
          .is_late = true};
}

Attr allow_tf32_as(Attrs attrs) { return {"allow_tf32", attr_i64(attrs, "allow_tf32")}; }

Result<Shape> product_shape(std::string_view op, Types in, Attrs attrs) {
  TSR_RETURN_IF_ERROR(check_flag(op, attrs, "trans_w"));
  TSR_RETURN_IF_ERROR(check_rank_at_least(op, in, 0, "x", 1));
  TSR_RETURN_IF_ERROR(check_rank(op, in, 1, "w", 2));
  const int trans = attr_i64(attrs, "trans_w") == 1 ? 1 : 0;
  const Shape &x = in[0].shape, &w = in[1].shape;
  if (w[trans] == last_extent(x)) return with_last(without_last(x), w[1 - trans]);
  return Status(StatusCode::kInvalidArgument,
                format("{}: inner extents differ, x [{}] vs w [{}] (trans_w = {})", op, x, w, trans));
}

Result<Shape> weight_grad_shape(std::string_view op, Types in, Attrs attrs) {
  TSR_RETURN_IF_ERROR(check_flag(op, attrs, "trans_w"));
  for (const int i : {0, 1}) TSR_RETURN_IF_ERROR(check_rank_at_least(op, in, i, i ? "dy" : "x", 1));
  const Shape &x = in[0].shape, &dy = in[1].shape;
  if (!(without_last(x) == without_last(dy)))
    return Status(StatusCode::kInvalidArgument,
                  format("{}: leading extents differ, x [{}] vs dy [{}]", op, x, dy));
  const int64_t k = last_extent(x), n = last_extent(dy);
  return attr_i64(attrs, "trans_w") == 1 ? Shape{n, k} : Shape{k, n};
}

}  // namespace tessera::ops
