// Functions shared by the files of graph/ops: checks with exact messages,
// sharding rules of the common forms, and costs from operand types. Everything
// works on symbols too: extents are compared for equality and never multiplied.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "graph/autodiff.h"
#include "graph/op_def.h"

namespace tessera::ops {

using Types = std::span<const TensorType>;
using Attrs = std::span<const Attr>;
using Inferred = Result<std::vector<TensorType>>;
using LinearSets = std::vector<std::vector<int>>;

// --- infer: each error names the value found, the value wanted, and the operand by its index and the name
// given

// Checks that the real attribute `name` is at least `least` and below `below`.
Status check_range(std::string_view op, Attrs attrs, std::string_view name, double least, double below);
constexpr double kUnbounded = 1e300;

Status check_count(std::string_view op, Types inputs, int wanted);
Status check_count(std::string_view op, Types inputs, int least, int most);
Status check_float(std::string_view op, Types inputs, int i, std::string_view name);
Status check_dtype(std::string_view op, Types inputs, int i, std::string_view name, DType wanted);
Status check_integer(std::string_view op, Types inputs, int i, std::string_view name);  // i32 or i64
Status check_rank(std::string_view op, Types inputs, int i, std::string_view name, int wanted);
Status check_rank_at_least(std::string_view op, Types inputs, int i, std::string_view name, int least);
// Checks that inputs i and j have the same shape; `check_same_type` compares the dtype as well.
Status check_same_shape(std::string_view op, Types inputs, int i, int j);
Status check_same_type(std::string_view op, Types inputs, int i, int j);
Status check_shape(std::string_view op, Types inputs, int i, std::string_view name, const Shape& wanted);
Status check_extent(std::string_view op, Types inputs, int i, std::string_view name, int dim, int64_t wanted);
// Checks a tensor dim named by an attribute: 0 <= dim < rank.
Status check_dim(std::string_view op, std::string_view attr, int64_t dim, int rank);

// Statistics, scalars and optimizer moments that belong to values of `dtype`: f64 in an f64 graph, else f32.
inline DType statistics_dtype(DType dtype) { return dtype == DType::kF64 ? DType::kF64 : DType::kF32; }

// The attribute of ops whose sums over rows may stay in f32, for readers that require them so.
inline constexpr AttrSpec kWideSums = {.name = "wide",
                                       .type = AttrType::kI64,
                                       .default_value = AttrValue(int64_t{0}),
                                       .meaning = "1: sums of 16-bit operands are f32",
                                       .is_late = true};
inline DType sums_dtype(DType dtype, Attrs attrs) {
  return attr_i64(attrs, "wide") == 1 ? statistics_dtype(dtype) : dtype;
}
// The gradient of such a sum in the type of operand 0.
Result<TensorId> narrow_sums_grad(VjpBuilder& builder, TensorId grad);

// [a, b, c] -> [a, b], and dims[begin, end) of a shape.
Shape without_last(const Shape& shape);
Shape with_last(const Shape& leading, int64_t last);
inline int64_t last_extent(const Shape& shape) { return shape[shape.rank() - 1]; }

// --- vjp

// Sets the gradient of input i to the tensor that `make` emits, when it is needed.
template <class Make>
Status set_grad(VjpBuilder& builder, int i, Make&& make) {
  if (!builder.needs_grad(i)) return {};
  TSR_ASSIGN_OR_RETURN(const TensorId grad, make());
  return builder.set_input_grad(i, grad);
}

// For ops without gradients (zeros_like, integer ops): leaves every input without one.
Status no_gradient(VjpBuilder& builder);

// OpDef::in_place of an op whose first result may reuse the buffer of its first operand.
inline constexpr int kInPlaceFirst[] = {0};

// --- sharding

// Letters of `count` leading dims: "abc", leaving out those in `taken` (by convention "kn", "v", "c", ...).
std::string leading_letters(int count, std::string_view taken = {});

// parse_rule, the linear sets, and factors that may not be sharded.
ShardingRule make_rule(std::string_view text, LinearSets linear = {}, std::string_view replicated = {});

// Marks factors as summed over too, although one of the results has them.
void reduce_too(ShardingRule& rule, std::string_view factors);

// A rule in which every operand has the dims a, b, c, ... of the first input, except scalars, which have
// none.
ShardingRule pointwise_rule(const OpView& view, LinearSets linear = {});

// --- cost

// Reads every input except those in `shape_only`, writes every output.
OpCost traffic_cost(const OpView& view, double flops, std::span<const int> shape_only = {});
// The same with `flops` per element of output 0.
OpCost elementwise_cost(const OpView& view, double flops_per_element, std::span<const int> shape_only = {});
// elementwise_cost as an OpDef column.
template <int kFlopsPerElement>
OpCost elementwise_cost(const OpView& view) {
  return elementwise_cost(view, kFlopsPerElement);
}

// --- matmuls: y [..., N] = x [..., K] w, w stored [K, N] ([N, K] when trans_w = 1), and dw = x^T dy, stored
// as w is

// WeightOperand::stored_read of ops that read a stored weight along its blocks, whatever their attributes.
StoredRead read_along_blocks(size_t operand_count, Attrs attrs);

// Checks that an attribute is 0 or 1.
Status check_flag(std::string_view op, Attrs attrs, std::string_view name);

// "allow_tf32". 1: a kernel may round f32 operands to TF32 (graph/base/tf32.h) before it multiplies them, and
// sums their products in f32; other types are multiplied as they are. Results, and the op's other steps, are
// not rounded so.
AttrSpec allow_tf32_spec();
// The attribute with its value in `attrs`, for a node's gradient and phases.
Attr allow_tf32_as(Attrs attrs);

// The shape of y from operands 0 (x) and 1 (w).
Result<Shape> matmul_shape(std::string_view op, Types in, Attrs attrs);

// The shape of dw from operands 0 (x) and 1 (dy).
Result<Shape> weight_grad_shape(std::string_view op, Types in, Attrs attrs);

// --- rows: values of [..., C] with one statistic a row (norms, softmax, cross entropy)

// Checks that operand i is a statistic of the rows of `rows` [..., C]: shape [...], f64 for f64 rows, else
// f32.
Status check_row_statistic(std::string_view op, Types inputs, int i, std::string_view name,
                           const TensorType& rows);

// Checks that operand i has the shape `wanted` and dtype i32.
Status check_indices(std::string_view op, Types inputs, int i, std::string_view name, const Shape& wanted);

// For a vjp: an error when a gradient reached output i, which serves only the backward pass.
Status check_not_differentiated(const VjpBuilder& builder, std::string_view op, int i, std::string_view name);

// make_rule for an op that normalises over `phased` and has a phased form.
ShardingRule phased_rule(std::string_view text, LinearSets linear, char phased);

}  // namespace tessera::ops
