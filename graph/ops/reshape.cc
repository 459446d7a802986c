// Reshapes are splits and merges of factors, so that a sharding passes through them. Data keep their
// row-major order.
#include "graph/base/text.h"
#include "graph/ops/op_support.h"

namespace tessera {

using namespace ops;

namespace {
// Letters a, b, ... for `rank` dims, with `at` standing in for dim `dim`.
std::string letters_with(int rank, int64_t dim, std::string_view at) {
  std::string text;
  const std::string letters = leading_letters(rank, "hi");
  for (int i = 0; i < rank; ++i)
    if (i == dim)
      text += at;
    else
      text += letters[static_cast<size_t>(i)];
  return text;
}
}  // namespace

// --- split_dim: [..., n, ...] -> [..., n / inner, inner, ...]. The outer part may be sharded, the inner not.

namespace {
const AttrSpec kSplitAttrs[] = {
    {"dim", AttrType::kI64, std::nullopt, "the dim to split"},
    {"inner", AttrType::kI64, std::nullopt, "extent of the second of the two dims it becomes"},
};

Inferred split_infer(Types in, Attrs attrs) {
  TSR_RETURN_IF_ERROR(check_count("split_dim", in, 1));
  const Shape& x = in[0].shape;
  const int64_t dim = attr_i64(attrs, "dim"), inner = attr_i64(attrs, "inner");
  TSR_RETURN_IF_ERROR(check_dim("split_dim", "dim", dim, x.rank()));
  if (x.rank() == kMaxRank)
    return Status(StatusCode::kInvalidArgument,
                  format("split_dim: operand {} already has the most dims there are, {}", in[0], kMaxRank));
  const int64_t n = x[static_cast<int>(dim)];
  if (inner < 1 || (is_symbol(n) ? inner != 1 : n % inner != 0))
    return Status(StatusCode::kInvalidArgument,
                  format("split_dim: dim {} of [{}] is not a multiple of inner = {}", dim, x, inner));
  Shape y;
  for (int i = 0; i < x.rank(); ++i) {
    y.push_back(i == dim && inner != 1 ? n / inner : x[i]);
    if (i == dim) y.push_back(inner);
  }
  return std::vector<TensorType>{{in[0].dtype, y}};
}

Status split_vjp(VjpBuilder& b) {
  const auto dy = b.output_grad(0);
  if (!dy) return {};
  return set_grad(b, 0, [&] { return b.emit("merge_dims", {*dy}, {{"dim", attr_i64(b.attrs(), "dim")}}); });
}

ShardingRule split_sharding(const OpView& view) {
  const int rank = view.inputs[0].shape.rank();
  const int64_t dim = attr_i64(view.attrs, "dim");
  return make_rule(letters_with(rank, dim, "(hi)") + "->" + letters_with(rank, dim, "hi"), {{0}}, "i");
}
}  // namespace

extern const OpDef kSplitDim = {
    .name = "split_dim",
    .attrs = kSplitAttrs,
    .infer = split_infer,
    .vjp = split_vjp,
    .sharding = split_sharding,
    .cost = elementwise_cost<0>,
    .in_place = kInPlaceFirst,
    .is_view = true,
    .algebra = Algebra::kSplitDim,
};

// --- merge_dims: [..., m, n, ...] -> [..., m * n, ...]. m may be sharded, n not.

namespace {
const AttrSpec kMergeAttrs[] = {
    {"dim", AttrType::kI64, std::nullopt, "the first of the two dims that become one"},
};

Inferred merge_infer(Types in, Attrs attrs) {
  TSR_RETURN_IF_ERROR(check_count("merge_dims", in, 1));
  const Shape& x = in[0].shape;
  const int64_t dim = attr_i64(attrs, "dim");
  TSR_RETURN_IF_ERROR(check_dim("merge_dims", "dim", dim, x.rank() - 1));
  const int64_t outer = x[static_cast<int>(dim)], inner = x[static_cast<int>(dim) + 1];
  if ((is_symbol(outer) && inner != 1) || is_symbol(inner))
    return Status(
        StatusCode::kInvalidArgument,
        format("merge_dims: dims {} and {} of [{}] have no product yet; merge after binding the symbols", dim,
               dim + 1, x));
  Shape y;
  for (int i = 0; i < x.rank(); ++i)
    if (i == dim)
      y.push_back(inner == 1 ? outer : outer * inner);
    else if (i != dim + 1)
      y.push_back(x[i]);
  return std::vector<TensorType>{{in[0].dtype, y}};
}

Status merge_vjp(VjpBuilder& b) {
  const auto dy = b.output_grad(0);
  if (!dy) return {};
  const int64_t dim = attr_i64(b.attrs(), "dim");
  const int64_t inner = b.input_type(0).shape[static_cast<int>(dim) + 1];
  if (inner == 0)
    return Status(StatusCode::kUnsupported,
                  format("merge_dims: no gradient of {}, whose dim {} is empty", b.input_type(0), dim + 1));
  return set_grad(b, 0, [&] { return b.emit("split_dim", {*dy}, {{"dim", dim}, {"inner", inner}}); });
}

ShardingRule merge_sharding(const OpView& view) {
  const int rank = view.outputs[0].shape.rank();
  const int64_t dim = attr_i64(view.attrs, "dim");
  return make_rule(letters_with(rank, dim, "hi") + "->" + letters_with(rank, dim, "(hi)"), {{0}}, "i");
}
}  // namespace

extern const OpDef kMergeDims = {
    .name = "merge_dims",
    .attrs = kMergeAttrs,
    .infer = merge_infer,
    .vjp = merge_vjp,
    .sharding = merge_sharding,
    .cost = elementwise_cost<0>,
    .in_place = kInPlaceFirst,
    .is_view = true,
};

}  // namespace tessera
