// matmul_gelu_grad(dy, w, pre)[..., n] = gelu'(pre[..., n]) * sum_k dy[..., k] * w[k, n], gelu in its tanh
// form.
//   dy [..., K], w [K, N] ([N, K] when trans_w = 1), pre [..., N] -> dpre [..., N]
// graph/transform/fusion.h makes it from gelu_grad and the matmul dy w that gives the gradient of
// gelu(pre).
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
  TSR_RETURN_IF_ERROR(check_dtype("matmul_gelu_grad", in, 1, "w", in[0].dtype));
  TSR_RETURN_IF_ERROR(check_dtype("matmul_gelu_grad", in, 2, "pre", in[0].dtype));
  TSR_ASSIGN_OR_RETURN(const Shape dpre, matmul_shape("matmul_gelu_grad", in, attrs));
  TSR_RETURN_IF_ERROR(check_shape("matmul_gelu_grad", in, 2, "pre", dpre));
  return std::vector<TensorType>{{in[0].dtype, dpre}};
}

// A shard of k computes an addend of dpre, since all of them have the same factor.
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
    .multiplies_matrices = true,
};

}  // namespace tessera
