// matmul_gelu_grad(dy, w, pre)[..., n] = gelu'(pre[..., n]) * sum_k dy[..., k] * w[k, n], gelu in its tanh
// form.
//   dy [..., K], w [K, N] ([N, K] when trans_w = 1), pre [..., N] -> dpre [..., N]
// What gelu_grad makes of the product dy w, where that is the gradient of gelu(pre)
// (graph/transform/gelu_products.h).
#include "graph/base/text.h"
#include "graph/ops/op_support.h"

namespace tessera {

using namespace ops;

namespace {
const AttrSpec kAttrs[] = {
    {"trans_w", AttrType::kI64, AttrValue(int64_t{0}), "1: w is stored [N, K]"},
};

Inferred infer(Types in, Attrs attrs) {
  TSR_RETURN_IF_ERROR(check_count("matmul_gelu_grad", in, 3));
  TSR_RETURN_IF_ERROR(check_float("matmul_gelu_grad", in, 0, "dy"));
  TSR_RETURN_IF_ERROR(check_rank_at_least("matmul_gelu_grad", in, 0, "dy", 1));
  TSR_RETURN_IF_ERROR(check_dtype("matmul_gelu_grad", in, 1, "w", in[0].dtype));
  TSR_RETURN_IF_ERROR(check_rank("matmul_gelu_grad", in, 1, "w", 2));
  TSR_RETURN_IF_ERROR(check_dtype("matmul_gelu_grad", in, 2, "pre", in[0].dtype));
  const int64_t trans = attr_i64(attrs, "trans_w");
  if (trans != 0 && trans != 1)
    return Status(StatusCode::kInvalidArgument,
                  format("matmul_gelu_grad: trans_w is {}, wanted 0 or 1", trans));
  const int64_t k = last_extent(in[0].shape), n = in[1].shape[trans == 1 ? 0 : 1];
  if (in[1].shape[trans == 1 ? 1 : 0] != k)
    return Status(StatusCode::kInvalidArgument,
                  format("matmul_gelu_grad: inner extents differ, dy [{}] vs w [{}] (trans_w = {})",
                         in[0].shape, in[1].shape, trans));
  const TensorType dpre{in[0].dtype, with_last(without_last(in[0].shape), n)};
  TSR_RETURN_IF_ERROR(check_shape("matmul_gelu_grad", in, 2, "pre", dpre.shape));
  return std::vector<TensorType>{dpre};
}

// A shard of k makes an addend of dpre, since all of them are multiplied by the same.
ShardingRule sharding(const OpView& view) {
  const std::string leading = leading_letters(view.inputs[0].shape.rank() - 1, "kn");
  const std::string w = attr_i64(view.attrs, "trans_w") == 1 ? "nk" : "kn";
  return make_rule(leading + "k," + w + "," + leading + "n->" + leading + "n", {{0}, {1}});
}

OpCost cost(const OpView& view) {
  const double dpre = static_cast<double>(view.outputs[0].shape.elements());
  return traffic_cost(view, dpre * (2 * static_cast<double>(last_extent(view.inputs[0].shape)) + 22));
}
}  // namespace

extern const OpDef kMatmulGeluGrad = {
    .name = "matmul_gelu_grad",
    .attrs = kAttrs,
    .infer = infer,
    .sharding = sharding,
    .cost = cost,
    .priced_as = "matmul",
};

}  // namespace tessera
