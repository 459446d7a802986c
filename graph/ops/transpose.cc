// transpose(x): dim i of the result is dim perm[i] of x.  [d0, ..., dn] -> [d(perm[0]), ..., d(perm[n])]
#include <algorithm>

#include "graph/base/text.h"
#include "graph/ops/op_support.h"

namespace tessera {

using namespace ops;

namespace {
const AttrSpec kAttrs[] = {
    {"perm", AttrType::kI64List, std::nullopt, "dim i of the result is dim perm[i] of x"},
};

Inferred infer(Types in, Attrs attrs) {
  TSR_RETURN_IF_ERROR(check_count("transpose", in, 1));
  const Shape& x = in[0].shape;
  const auto perm = attr_i64_list(attrs, "perm");
  std::vector<bool> seen(static_cast<size_t>(x.rank()));
  for (int64_t dim : perm) {
    TSR_RETURN_IF_ERROR(check_dim("transpose", "an entry of perm", dim, x.rank()));
    seen[static_cast<size_t>(dim)] = true;
  }
  if (static_cast<int>(perm.size()) != x.rank() || std::ranges::find(seen, false) != seen.end())
    return Status(StatusCode::kInvalidArgument,
                  format("transpose: perm {} is not an order of the {} dims of [{}]",
                         to_text(AttrValue(std::vector<int64_t>(perm.begin(), perm.end()))), x.rank(), x));
  Shape y;
  for (int64_t dim : perm) y.push_back(x[static_cast<int>(dim)]);
  return std::vector<TensorType>{{in[0].dtype, y}};
}

Status vjp(VjpBuilder& b) {
  const auto dy = b.output_grad(0);
  if (!dy) return {};
  const auto perm = attr_i64_list(b.attrs(), "perm");
  std::vector<int64_t> inverse(perm.size());
  for (size_t i = 0; i < perm.size(); ++i) inverse[static_cast<size_t>(perm[i])] = static_cast<int64_t>(i);
  return set_grad(b, 0, [&] { return b.emit("transpose", {*dy}, {{"perm", inverse}}); });
}

ShardingRule sharding(const OpView& view) {
  const std::string x = leading_letters(view.inputs[0].shape.rank());
  std::string y;
  for (int64_t dim : attr_i64_list(view.attrs, "perm")) y += x[static_cast<size_t>(dim)];
  return make_rule(x + "->" + y, {{0}});
}
}  // namespace

extern const OpDef kTranspose = {
    .name = "transpose",
    .attrs = kAttrs,
    .infer = infer,
    .vjp = vjp,
    .sharding = sharding,
    .cost = elementwise_cost<0>,
};

}  // namespace tessera
