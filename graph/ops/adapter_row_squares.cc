// adapter_row_squares(w, a, b)[n] = sum_k W'[n, k]^2 of W' = W + factor * (b a): squares of the norms of a
// weight with its low-rank adapter, the divisors of DoRA (https://arxiv.org/abs/2402.09353). W' is never stored.
// trans_w = 1: w [N, K], a [R, K], b [N, R];  0: w [K, N], a [K, R], b [R, N]
// a, b f32 or f64, w of their type, or stored in bf16, f16 or (trans_w = 1) a block type -> [N] as a.
// A constant to differentiation, as in the paper's section 4.3.
#include "graph/base/text.h"
#include "graph/ops/op_support.h"

namespace tessera {

using namespace ops;

namespace {

constexpr std::string_view kName = "adapter_row_squares";

const AttrSpec kAttrs[] = {
    {"trans_w", AttrType::kI64, int64_t{1}, "1: w is [N, K], as a linear layer stores it"},
    {"factor", AttrType::kF64, 1.0, "of the adapter's product"},
};

Inferred infer(Types in, Attrs attrs) {
  TSR_RETURN_IF_ERROR(check_count(kName, in, 3));
  TSR_RETURN_IF_ERROR(check_flag(kName, attrs, "trans_w"));
  for (const auto& [i, name] : {std::pair(0, "w"), std::pair(1, "a"), std::pair(2, "b")})
    TSR_RETURN_IF_ERROR(check_rank(kName, in, i, name, 2));
  if (in[1].dtype != DType::kF64) TSR_RETURN_IF_ERROR(check_dtype(kName, in, 1, "a", DType::kF32));
  TSR_RETURN_IF_ERROR(check_dtype(kName, in, 2, "b", in[1].dtype));
  const bool trans = attr_i64(attrs, "trans_w") == 1;
  if (in[0].dtype != in[1].dtype && (!is_narrow_type(in[0].dtype) || (is_block_type(in[0].dtype) && !trans)))
    return Status(StatusCode::kInvalidArgument,
                  format("{}: operand 0 (w) is {}, wanted {}, bf16, f16{}", kName, in[0],
                         to_text(in[1].dtype), trans ? " or a block type" : ""));
  const Shape &w = in[0].shape, &a = in[1].shape;
  const int64_t N = w[trans ? 0 : 1], K = w[trans ? 1 : 0], R = a[trans ? 0 : 1];
  TSR_RETURN_IF_ERROR(check_shape(kName, in, 1, "a", trans ? Shape{R, K} : Shape{K, R}));
  TSR_RETURN_IF_ERROR(check_shape(kName, in, 2, "b", trans ? Shape{N, R} : Shape{R, N}));
  return std::vector<TensorType>{{in[1].dtype, {N}}};
}

// Shards of k add up; the rank is whole.
ShardingRule sharding(const OpView& view) {
  return make_rule(attr_i64(view.attrs, "trans_w") == 1 ? "nk,rk,nr->n" : "kn,kr,rn->n", {}, "r");
}

OpCost cost(const OpView& view) {
  const auto elements = static_cast<double>(view.inputs[0].shape.elements());
  const auto rank = static_cast<double>(view.inputs[1].shape[attr_i64(view.attrs, "trans_w") == 1 ? 0 : 1]);
  return traffic_cost(view, elements * (2 * rank + 3));
}

StoredRead stored_read(size_t, Attrs attrs) {
  return attr_i64(attrs, "trans_w") == 1 ? StoredRead::kAllowed : StoredRead::kRefused;
}

}  // namespace

extern const OpDef kAdapterRowSquares = {
    .name = kName,
    .attrs = kAttrs,
    .infer = infer,
    .vjp = no_gradient,
    .sharding = sharding,
    .cost = cost,
    .weight = {.operand = 0, .stored_read = stored_read},
};

}  // namespace tessera
