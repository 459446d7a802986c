// slice(x): rows [begin, end) of one dim.   [..., n, ...] -> [..., end - begin, ...]
// pad(x): zeros around one dim.             [..., n, ...] -> [..., before + n + after, ...]
// concat(x0, x1, ...): one after another along one dim.
// That dim is whole on every shard and concrete. Its extents differ between operands, so each has its own
// factor.
#include <algorithm>

#include "graph/base/text.h"
#include "graph/ops/op_support.h"

namespace tessera {

using namespace ops;

namespace {
// "abXd": the letters of `rank` dims with `own` for dim `dim`.
std::string letters_with(int rank, int64_t dim, char own) {
  std::string letters = leading_letters(rank);
  letters[static_cast<size_t>(dim)] = own;
  return letters;
}

Shape with_extent(Shape shape, int64_t dim, int64_t extent) {
  shape.set(static_cast<int>(dim), extent);
  return shape;
}

Status check_concrete(std::string_view op, Types in, size_t i, int64_t dim) {
  if (!is_symbol(in[i].shape[static_cast<int>(dim)])) return {};
  return Status(
      StatusCode::kInvalidArgument,
      format("{}: dim {} of operand {} [{}] is a symbol, wanted a number", op, dim, i, in[i].shape));
}
}  // namespace

// --- slice

namespace {
const AttrSpec kSliceAttrs[] = {
    {"dim", AttrType::kI64, std::nullopt, "the dim to cut"},
    {"begin", AttrType::kI64, AttrValue(int64_t{0}), "first row kept"},
    {"end", AttrType::kI64, std::nullopt, "one past the last row kept"},
};

Inferred slice_infer(Types in, Attrs attrs) {
  TSR_RETURN_IF_ERROR(check_count("slice", in, 1));
  const int64_t dim = attr_i64(attrs, "dim"), begin = attr_i64(attrs, "begin"), end = attr_i64(attrs, "end");
  TSR_RETURN_IF_ERROR(check_dim("slice", "dim", dim, in[0].shape.rank()));
  TSR_RETURN_IF_ERROR(check_concrete("slice", in, 0, dim));
  const int64_t n = in[0].shape[static_cast<int>(dim)];
  if (begin < 0 || begin > end || end > n)
    return Status(StatusCode::kInvalidArgument,
                  format("slice: rows [{}, {}) of dim {} of [{}], wanted 0 <= begin <= end <= {}", begin, end,
                         dim, in[0].shape, n));
  return std::vector<TensorType>{{in[0].dtype, with_extent(in[0].shape, dim, end - begin)}};
}

Status slice_vjp(VjpBuilder& b) {
  const auto dy = b.output_grad(0);
  if (!dy) return {};
  const int64_t dim = attr_i64(b.attrs(), "dim"), begin = attr_i64(b.attrs(), "begin");
  const int64_t after = b.input_type(0).shape[static_cast<int>(dim)] - attr_i64(b.attrs(), "end");
  return set_grad(b, 0, [&] {
    return b.emit("pad", {*dy}, {{"dim", dim}, {"before", begin}, {"after", after}});
  });
}

ShardingRule slice_sharding(const OpView& view) {
  const int rank = view.inputs[0].shape.rank();
  const int64_t dim = attr_i64(view.attrs, "dim");
  return make_rule(letters_with(rank, dim, 'x') + "->" + letters_with(rank, dim, 'y'), {{0}}, "xy");
}

// Only the kept rows of x are read.
OpCost slice_cost(const OpView& view) {
  const double moved = static_cast<double>(bytes(view.outputs[0]));
  return {.flops = 0, .bytes_read = moved, .bytes_written = moved};
}
}  // namespace

extern const OpDef kSlice = {
    .name = "slice",
    .attrs = kSliceAttrs,
    .infer = slice_infer,
    .vjp = slice_vjp,
    .sharding = slice_sharding,
    .cost = slice_cost,
    .algebra = Algebra::kSlice,
};

// --- pad

namespace {
const AttrSpec kPadAttrs[] = {
    {"dim", AttrType::kI64, std::nullopt, "the dim to extend"},
    {"before", AttrType::kI64, AttrValue(int64_t{0}), "rows of zeros in front"},
    {"after", AttrType::kI64, AttrValue(int64_t{0}), "rows of zeros behind"},
};

Inferred pad_infer(Types in, Attrs attrs) {
  TSR_RETURN_IF_ERROR(check_count("pad", in, 1));
  TSR_RETURN_IF_ERROR(check_float("pad", in, 0, "x"));
  const int64_t dim = attr_i64(attrs, "dim"), before = attr_i64(attrs, "before"),
                after = attr_i64(attrs, "after");
  TSR_RETURN_IF_ERROR(check_dim("pad", "dim", dim, in[0].shape.rank()));
  TSR_RETURN_IF_ERROR(check_concrete("pad", in, 0, dim));
  constexpr int64_t kMost = int64_t{1} << 48;  // far from overflow
  if (before < 0 || after < 0 || before > kMost || after > kMost)
    return Status(StatusCode::kInvalidArgument,
                  format("pad: before is {} and after {}, wanted 0 or more rows", before, after));
  const int64_t n = in[0].shape[static_cast<int>(dim)];
  return std::vector<TensorType>{{in[0].dtype, with_extent(in[0].shape, dim, before + n + after)}};
}

Status pad_vjp(VjpBuilder& b) {
  const auto dy = b.output_grad(0);
  if (!dy) return {};
  const int64_t dim = attr_i64(b.attrs(), "dim"), before = attr_i64(b.attrs(), "before");
  const int64_t end = before + b.input_type(0).shape[static_cast<int>(dim)];
  return set_grad(b, 0, [&] {
    return b.emit("slice", {*dy}, {{"dim", dim}, {"begin", before}, {"end", end}});
  });
}

ShardingRule pad_sharding(const OpView& view) {
  const int rank = view.inputs[0].shape.rank();
  const int64_t dim = attr_i64(view.attrs, "dim");
  return make_rule(letters_with(rank, dim, 'x') + "->" + letters_with(rank, dim, 'y'), {{0}}, "xy");
}
}  // namespace

extern const OpDef kPad = {
    .name = "pad",
    .attrs = kPadAttrs,
    .infer = pad_infer,
    .vjp = pad_vjp,
    .sharding = pad_sharding,
    .cost = elementwise_cost<0>,
};

// --- concat

namespace {
// One factor per operand and one for the result; upper case, away from those of the other dims.
constexpr std::string_view kPieceLetters = "ABCDEFGHIJKLMNOPQRSTUVWXY";

const AttrSpec kConcatAttrs[] = {
    {"dim", AttrType::kI64, std::nullopt, "the dim along which the operands follow each other"},
};

Inferred concat_infer(Types in, Attrs attrs) {
  TSR_RETURN_IF_ERROR(check_count("concat", in, 1, static_cast<int>(kPieceLetters.size())));
  const int64_t dim = attr_i64(attrs, "dim");
  TSR_RETURN_IF_ERROR(check_dim("concat", "dim", dim, in[0].shape.rank()));
  int64_t total = 0;
  for (size_t i = 0; i < in.size(); ++i) {
    TSR_RETURN_IF_ERROR(check_dtype("concat", in, static_cast<int>(i), "a piece", in[0].dtype));
    TSR_RETURN_IF_ERROR(check_rank("concat", in, static_cast<int>(i), "a piece", in[0].shape.rank()));
    TSR_RETURN_IF_ERROR(check_concrete("concat", in, i, dim));
    const int64_t n = in[i].shape[static_cast<int>(dim)];
    TSR_RETURN_IF_ERROR(
        check_shape("concat", in, static_cast<int>(i), "a piece", with_extent(in[0].shape, dim, n)));
    total += n;
  }
  return std::vector<TensorType>{{in[0].dtype, with_extent(in[0].shape, dim, total)}};
}

Status concat_vjp(VjpBuilder& b) {
  const auto dy = b.output_grad(0);
  if (!dy) return {};
  const int64_t dim = attr_i64(b.attrs(), "dim");
  int64_t begin = 0;
  for (int i = 0; i < b.input_count(); ++i) {
    const int64_t end = begin + b.input_type(i).shape[static_cast<int>(dim)];
    TSR_RETURN_IF_ERROR(set_grad(b, i, [&] {
      return b.emit("slice", {*dy}, {{"dim", dim}, {"begin", begin}, {"end", end}});
    }));
    begin = end;
  }
  return {};
}

ShardingRule concat_sharding(const OpView& view) {
  const int rank = view.inputs[0].shape.rank();
  const int64_t dim = attr_i64(view.attrs, "dim");
  std::vector<std::string> pieces;
  std::vector<int> all;
  for (size_t i = 0; i < view.inputs.size(); ++i) {
    pieces.push_back(letters_with(rank, dim, kPieceLetters[i]));
    all.push_back(static_cast<int>(i));
  }
  const std::string own = std::string(kPieceLetters.substr(0, pieces.size())) + "Z";
  return make_rule(join(pieces, ",") + "->" + letters_with(rank, dim, 'Z'), {all}, own);
}
}  // namespace

extern const OpDef kConcat = {
    .name = "concat",
    .attrs = kConcatAttrs,
    .infer = concat_infer,
    .vjp = concat_vjp,
    .sharding = concat_sharding,
    .cost = elementwise_cost<0>,
    .algebra = Algebra::kConcatenation,
};

}  // namespace tessera
