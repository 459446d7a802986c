// Reductions and their adjoint. The factor of dim i of the larger operand is the letter 'a' + i in each of
// these rules, which is how the kernels find global extents.
#include <algorithm>

#include "graph/base/text.h"
#include "graph/ops/op_support.h"

namespace tessera {

using namespace ops;

namespace {
Status check_axes(std::string_view op, std::span<const int64_t> axes, int rank) {
  for (int64_t axis : axes) TSR_RETURN_IF_ERROR(check_dim(op, "an entry of axes", axis, rank));
  if (std::ranges::adjacent_find(axes, std::greater_equal{}) == axes.end()) return {};
  return Status(StatusCode::kInvalidArgument,
                format("{}: axes are {}, wanted ascending ones without repetition", op,
                       to_text(AttrValue(std::vector<int64_t>(axes.begin(), axes.end())))));
}

// `whole` without the entries at `axes`.
Shape drop_dims(const Shape& whole, std::span<const int64_t> axes) {
  Shape kept;
  for (int dim = 0; dim < whole.rank(); ++dim)
    if (std::ranges::find(axes, dim) == axes.end()) kept.push_back(whole[dim]);
  return kept;
}

std::string drop_letters(const std::string& letters, std::span<const int64_t> axes) {
  std::string kept;
  for (size_t dim = 0; dim < letters.size(); ++dim)
    if (std::ranges::find(axes, static_cast<int64_t>(dim)) == axes.end()) kept += letters[dim];
  return kept;
}
}  // namespace

// --- sum_leading(x)[n] = sum over all other dims of x[..., n]: the gradient of a bias
//     x [..., N] -> y [N], with wide = 1 in f32 of 16-bit x

namespace {
const AttrSpec kSumLeadingAttrs[] = {kWideSums};

Inferred sum_leading_infer(Types in, Attrs attrs) {
  TSR_RETURN_IF_ERROR(check_count("sum_leading", in, 1));
  TSR_RETURN_IF_ERROR(check_float("sum_leading", in, 0, "x"));
  TSR_RETURN_IF_ERROR(check_rank_at_least("sum_leading", in, 0, "x", 1));
  return std::vector<TensorType>{{sums_dtype(in[0].dtype, attrs), Shape{last_extent(in[0].shape)}}};
}

Status sum_leading_vjp(VjpBuilder& b) {
  auto dy = b.output_grad(0);
  if (!dy) return {};
  TSR_ASSIGN_OR_RETURN(dy, narrow_sums_grad(b, *dy));
  std::vector<int64_t> axes;
  for (int dim = 0; dim + 1 < b.input_type(0).shape.rank(); ++dim) axes.push_back(dim);
  return set_grad(b, 0, [&] { return b.emit("broadcast", {*dy, b.input(0)}, {{"axes", axes}}); });
}

ShardingRule sum_leading_sharding(const OpView& view) {
  return make_rule(leading_letters(view.inputs[0].shape.rank() - 1, "n") + "n->n", {{0}});
}
}  // namespace

extern const OpDef kSumLeading = {
    .name = "sum_leading",
    .attrs = kSumLeadingAttrs,
    .infer = sum_leading_infer,
    .vjp = sum_leading_vjp,
    .sharding = sum_leading_sharding,
    .cost =
        [](const OpView& v) { return traffic_cost(v, static_cast<double>(v.inputs[0].shape.elements())); },
    .algebra = Algebra::kColumnSums,
};

// --- reduce_sum, reduce_mean, reduce_max: x -> y without the dims `axes`.
//     The mean divides by the global extents; the mean of no elements is 0, their maximum -infinity.

namespace {
const AttrSpec kReduceAttrs[] = {
    {"axes", AttrType::kI64List, std::nullopt, "dims to reduce, ascending; they are dropped"},
};

Inferred infer_reduce(std::string_view op, Types in, Attrs attrs) {
  TSR_RETURN_IF_ERROR(check_count(op, in, 1));
  TSR_RETURN_IF_ERROR(check_float(op, in, 0, "x"));
  const auto axes = attr_i64_list(attrs, "axes");
  TSR_RETURN_IF_ERROR(check_axes(op, axes, in[0].shape.rank()));
  return std::vector<TensorType>{{in[0].dtype, drop_dims(in[0].shape, axes)}};
}

Status reduce_vjp(VjpBuilder& b, int64_t mean) {
  const auto dy = b.output_grad(0);
  if (!dy) return {};
  const auto axes = attr_i64_list(b.attrs(), "axes");
  return set_grad(b, 0, [&] {
    return b.emit("broadcast", {*dy, b.input(0)},
                  {{"axes", std::vector<int64_t>(axes.begin(), axes.end())}, {"mean", mean}});
  });
}

ShardingRule reduce_sharding(const OpView& view, ReduceKind reduce) {
  const std::string x = leading_letters(view.inputs[0].shape.rank());
  const auto axes = attr_i64_list(view.attrs, "axes");
  ShardingRule rule = make_rule(x + "->" + drop_letters(x, axes),
                                reduce == ReduceKind::kSum ? LinearSets{{0}} : LinearSets{});
  for (int64_t axis : axes) rule.find(x[static_cast<size_t>(axis)])->reduce = reduce;
  return rule;
}

OpCost reduce_cost(const OpView& view) {
  return traffic_cost(view, static_cast<double>(view.inputs[0].shape.elements()));
}
}  // namespace

extern const OpDef kReduceSum = {
    .name = "reduce_sum",
    .attrs = kReduceAttrs,
    .infer = [](Types in, Attrs attrs) { return infer_reduce("reduce_sum", in, attrs); },
    .vjp = [](VjpBuilder& b) { return reduce_vjp(b, 0); },
    .sharding = [](const OpView& v) { return reduce_sharding(v, ReduceKind::kSum); },
    .cost = reduce_cost,
    .algebra = Algebra::kTotal,
};

extern const OpDef kReduceMean = {
    .name = "reduce_mean",
    .attrs = kReduceAttrs,
    .infer = [](Types in, Attrs attrs) { return infer_reduce("reduce_mean", in, attrs); },
    .vjp = [](VjpBuilder& b) { return reduce_vjp(b, 1); },
    .sharding = [](const OpView& v) { return reduce_sharding(v, ReduceKind::kSum); },
    .cost = reduce_cost,
};

// Not differentiable: the gradient of several equal maxima is undefined.
extern const OpDef kReduceMax = {
    .name = "reduce_max",
    .attrs = kReduceAttrs,
    .infer = [](Types in, Attrs attrs) { return infer_reduce("reduce_max", in, attrs); },
    .sharding = [](const OpView& v) { return reduce_sharding(v, ReduceKind::kMax); },
    .cost = reduce_cost,
};

// --- broadcast: x repeated along the dims `axes` of `like` that it lacks; with mean = 1 divided by their
// extents
//     (global). The adjoint of reduce_sum and reduce_mean. x, shape: like -> y, the shape of like, the dtype
//     of x

namespace {
const AttrSpec kBroadcastAttrs[] = {
    {"axes", AttrType::kI64List, std::nullopt, "dims of `like` that x lacks, ascending"},
    {"mean", AttrType::kI64, AttrValue(int64_t{0}), "1: divide by the global extents of axes"},
};

Inferred broadcast_infer(Types in, Attrs attrs) {
  TSR_RETURN_IF_ERROR(check_count("broadcast", in, 2));
  TSR_RETURN_IF_ERROR(check_float("broadcast", in, 0, "x"));
  const auto axes = attr_i64_list(attrs, "axes");
  TSR_RETURN_IF_ERROR(check_axes("broadcast", axes, in[1].shape.rank()));
  TSR_RETURN_IF_ERROR(check_shape("broadcast", in, 0, "x", drop_dims(in[1].shape, axes)));
  const int64_t mean = attr_i64(attrs, "mean");
  if (mean != 0 && mean != 1)
    return Status(StatusCode::kInvalidArgument, format("broadcast: mean is {}, wanted 0 or 1", mean));
  return std::vector<TensorType>{{in[0].dtype, in[1].shape}};
}

Status broadcast_vjp(VjpBuilder& b) {
  const auto dy = b.output_grad(0);
  if (!dy) return {};
  const auto axes = attr_i64_list(b.attrs(), "axes");
  const std::string_view op = attr_i64(b.attrs(), "mean") == 1 ? "reduce_mean" : "reduce_sum";
  return set_grad(b, 0, [&] {
    return b.emit(op, {*dy}, {{"axes", std::vector<int64_t>(axes.begin(), axes.end())}});
  });
}

ShardingRule broadcast_sharding(const OpView& view) {
  const std::string y = leading_letters(view.inputs[1].shape.rank());
  return make_rule(drop_letters(y, attr_i64_list(view.attrs, "axes")) + "," + y + "->" + y, {{0}});
}

constexpr int kLike[] = {1};
}  // namespace

extern const OpDef kBroadcast = {
    .name = "broadcast",
    .attrs = kBroadcastAttrs,
    .infer = broadcast_infer,
    .vjp = broadcast_vjp,
    .sharding = broadcast_sharding,
    .cost = [](const OpView& v) { return elementwise_cost(v, 0, kLike); },
    .shape_only = kLike,
    .algebra = Algebra::kRepetition,
};

}  // namespace tessera
