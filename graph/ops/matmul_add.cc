// matmul_add(x, w, addend, bias)[..., n] = sum_k x[..., k] * w[k, n] + addend[..., n] + bias[n], rounded
// once.
//   x [..., K], w [K, N] ([N, K] when trans_w = 1), addend [..., N], bias [N] optional -> y [..., N]
// Lowering makes it from an add and the matmul before it on the same device
// (parallel/lowering/kernel_fusion.h): a residual, or a sum of gradients.
#include "graph/base/text.h"
#include "graph/ops/op_support.h"

namespace tessera {

using namespace ops;

namespace {
const AttrSpec kAttrs[] = {
    {"trans_w", AttrType::kI64, AttrValue(int64_t{0}), "1: w is stored [N, K]"},
    allow_tf32_spec(),
};
const int kInPlace[] = {2};

Inferred infer(Types in, Attrs attrs) {
  TSR_RETURN_IF_ERROR(check_count("matmul_add", in, 3, 4));
  std::vector<TensorType> operands = {in[0], in[1]};
  if (in.size() == 4) operands.push_back(in[3]);
  const std::vector<Attr> product = {
      {"trans_w", attr_i64(attrs, "trans_w")}, {"activation", std::string("none")}, allow_tf32_as(attrs)};
  Inferred y = find_op("matmul")->infer(operands, product);
  if (!y.ok()) return y.status().with_context("matmul_add");
  TSR_RETURN_IF_ERROR(check_dtype("matmul_add", in, 2, "addend", in[0].dtype));
  TSR_RETURN_IF_ERROR(check_shape("matmul_add", in, 2, "addend", y.value()[0].shape));
  return y;
}

// Each shard of k computes a partial sum of y. Only one shard adds
// `addend` and `bias`: the one whose k begins at 0.
ShardingRule sharding(const OpView& view) {
  const std::string leading = leading_letters(view.inputs[0].shape.rank() - 1, "kn");
  const std::string w = attr_i64(view.attrs, "trans_w") == 1 ? "nk" : "kn";
  const bool bias = view.inputs.size() == 4;
  return make_rule(leading + "k," + w + "," + leading + "n" + (bias ? ",n" : "") + "->" + leading + "n",
                   bias ? LinearSets{{0, 2, 3}, {1, 2, 3}} : LinearSets{{0, 2}, {1, 2}});
}

OpCost cost(const OpView& view) {
  const double y = static_cast<double>(view.outputs[0].shape.elements());
  const double k = static_cast<double>(last_extent(view.inputs[0].shape));
  return traffic_cost(view, y * (2 * k + static_cast<double>(view.inputs.size()) - 2));
}
}  // namespace

extern const OpDef kMatmulAdd = {
    .name = "matmul_add",
    .attrs = kAttrs,
    .infer = infer,
    .sharding = sharding,
    .cost = cost,
    .in_place = kInPlace,
    .priced_as = "matmul",
    .multiplies_matrices = true,
};

}  // namespace tessera
