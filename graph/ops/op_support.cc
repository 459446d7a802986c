#include "graph/ops/op_support.h"

#include <algorithm>

#include "graph/base/text.h"

namespace tessera::ops {

namespace {
Status mismatch(std::string message) { return Status(StatusCode::kInvalidArgument, std::move(message)); }

const TensorType& type(Types inputs, int i) { return inputs[static_cast<size_t>(i)]; }

// Extents for messages: symbols as "$0".
std::string extent_text(int64_t extent) { return to_text(Shape{extent}); }
}  // namespace

Status check_range(std::string_view op, Attrs attrs, std::string_view name, double least, double below) {
  const double value = attr_f64(attrs, name);
  if (value >= least && value < below) return {};
  return Status(StatusCode::kInvalidArgument,
                format("{}: {} is {}, wanted {} <= {} < {}", op, name, value, least, name, below));
}

Status check_count(std::string_view op, Types inputs, int wanted) {
  if (static_cast<int>(inputs.size()) == wanted) return {};
  return mismatch(format("{}: {} operands, wanted {}", op, inputs.size(), wanted));
}

Status check_count(std::string_view op, Types inputs, int least, int most) {
  const auto count = static_cast<int>(inputs.size());
  if (count >= least && count <= most) return {};
  return mismatch(format("{}: {} operands, wanted {} to {}", op, count, least, most));
}

Status check_float(std::string_view op, Types inputs, int i, std::string_view name) {
  if (info(type(inputs, i).dtype).is_float && info(type(inputs, i).dtype).block_elements == 1) return {};
  return mismatch(format("{}: operand {} ({}) is {}, wanted a float type (f32, f64, f16, bf16); use cast", op,
                         i, name, type(inputs, i)));
}

Status check_dtype(std::string_view op, Types inputs, int i, std::string_view name, DType wanted) {
  if (type(inputs, i).dtype == wanted) return {};
  return mismatch(format("{}: operand {} ({}) is {}, wanted dtype {}", op, i, name, type(inputs, i), wanted));
}

Status check_integer(std::string_view op, Types inputs, int i, std::string_view name) {
  const DType dtype = type(inputs, i).dtype;
  if (dtype == DType::kI32 || dtype == DType::kI64) return {};
  return mismatch(format("{}: operand {} ({}) is {}, wanted i32 or i64", op, i, name, type(inputs, i)));
}

Status check_rank(std::string_view op, Types inputs, int i, std::string_view name, int wanted) {
  if (type(inputs, i).shape.rank() == wanted) return {};
  return mismatch(format("{}: operand {} ({}) is {}, wanted {} dims", op, i, name, type(inputs, i), wanted));
}

Status check_rank_at_least(std::string_view op, Types inputs, int i, std::string_view name, int least) {
  if (type(inputs, i).shape.rank() >= least) return {};
  return mismatch(
      format("{}: operand {} ({}) is {}, wanted at least {} dims", op, i, name, type(inputs, i), least));
}

Status check_same_shape(std::string_view op, Types inputs, int i, int j) {
  if (type(inputs, i).shape == type(inputs, j).shape) return {};
  return mismatch(format("{}: operands {} and {} have shapes [{}] and [{}], wanted equal ones", op, i, j,
                         type(inputs, i).shape, type(inputs, j).shape));
}

Status check_same_type(std::string_view op, Types inputs, int i, int j) {
  if (type(inputs, i) == type(inputs, j)) return {};
  return mismatch(format("{}: operands {} and {} are {} and {}, wanted equal types", op, i, j,
                         type(inputs, i), type(inputs, j)));
}

Status check_shape(std::string_view op, Types inputs, int i, std::string_view name, const Shape& wanted) {
  if (type(inputs, i).shape == wanted) return {};
  return mismatch(
      format("{}: operand {} ({}) has shape [{}], wanted [{}]", op, i, name, type(inputs, i).shape, wanted));
}

Status check_extent(std::string_view op, Types inputs, int i, std::string_view name, int dim,
                    int64_t wanted) {
  if (type(inputs, i).shape[dim] == wanted) return {};
  return mismatch(format("{}: operand {} ({}) has shape [{}], wanted extent {} in dim {}", op, i, name,
                         type(inputs, i).shape, extent_text(wanted), dim));
}

Status check_dim(std::string_view op, std::string_view attr, int64_t dim, int rank) {
  if (dim >= 0 && dim < rank) return {};
  return mismatch(format("{}: {} is {}, wanted a dim of an operand with {} dims", op, attr, dim, rank));
}

Shape without_last(const Shape& shape) {
  TSR_CHECK(shape.rank() > 0, "a scalar has no last dim");
  return Shape(shape.dims().first(static_cast<size_t>(shape.rank() - 1)));
}

Shape with_last(const Shape& leading, int64_t last) {
  Shape shape = leading;
  shape.push_back(last);
  return shape;
}

Status no_gradient(VjpBuilder&) { return {}; }

std::string leading_letters(int count, std::string_view taken) {
  std::string letters;
  for (char letter = 'a'; static_cast<int>(letters.size()) < count; ++letter) {
    TSR_CHECK(letter <= 'z', "more dims than letters");
    if (taken.find(letter) == std::string_view::npos) letters += letter;
  }
  return letters;
}

ShardingRule make_rule(std::string_view text, LinearSets linear, std::string_view replicated) {
  ShardingRule rule = parse_rule(text);
  rule.linear = std::move(linear);
  for (char name : replicated) {
    Factor* factor = rule.find(name);
    TSR_CHECK(factor != nullptr, "a replicated factor is not in the rule");
    factor->kind = FactorKind::kReplicate;
  }
  return rule;
}

Result<TensorId> narrow_sums_grad(VjpBuilder& builder, TensorId grad) {
  const DType dtype = builder.input_type(0).dtype;
  if (builder.output_type(0).dtype == dtype) return grad;
  return builder.emit("cast", {grad}, {{"dtype", std::string(to_text(dtype))}});
}

void reduce_too(ShardingRule& rule, std::string_view factors) {
  for (const char name : factors) rule.find(name)->kind = FactorKind::kReduce;
}

ShardingRule pointwise_rule(const OpView& view, LinearSets linear) {
  const auto operands = [](Types types) {
    std::vector<std::string> parts;
    for (const TensorType& t : types) parts.push_back(leading_letters(t.shape.rank()));
    return join(parts, ",");
  };
  return make_rule(operands(view.inputs) + "->" + operands(view.outputs), std::move(linear));
}

OpCost traffic_cost(const OpView& view, double flops, std::span<const int> shape_only) {
  OpCost cost{.flops = flops};
  for (size_t i = 0; i < view.inputs.size(); ++i)
    if (std::ranges::find(shape_only, static_cast<int>(i)) == shape_only.end())
      cost.bytes_read += static_cast<double>(bytes(view.inputs[i]));
  for (const TensorType& t : view.outputs) cost.bytes_written += static_cast<double>(bytes(t));
  return cost;
}

OpCost elementwise_cost(const OpView& view, double flops_per_element, std::span<const int> shape_only) {
  return traffic_cost(view, flops_per_element * static_cast<double>(view.outputs[0].shape.elements()),
                      shape_only);
}

// --- matmuls

StoredRead read_along_blocks(size_t, Attrs) { return StoredRead::kWanted; }

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

Result<Shape> matmul_shape(std::string_view op, Types in, Attrs attrs) {
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

// --- rows

Status check_row_statistic(std::string_view op, Types inputs, int i, std::string_view name,
                           const TensorType& rows) {
  TSR_RETURN_IF_ERROR(check_dtype(op, inputs, i, name, statistics_dtype(rows.dtype)));
  return check_shape(op, inputs, i, name, without_last(rows.shape));
}

Status check_indices(std::string_view op, Types inputs, int i, std::string_view name, const Shape& wanted) {
  TSR_RETURN_IF_ERROR(check_dtype(op, inputs, i, name, DType::kI32));
  return check_shape(op, inputs, i, name, wanted);
}

Status check_not_differentiated(const VjpBuilder& builder, std::string_view op, int i,
                                std::string_view name) {
  if (!builder.output_grad(i)) return {};
  return Status(StatusCode::kUnsupported,
                format("{}: the loss depends on output {} ({}), which serves the backward pass and is not "
                       "differentiated; compute it from output 0",
                       op, i, name));
}

ShardingRule phased_rule(std::string_view text, LinearSets linear, char phased) {
  ShardingRule rule = make_rule(text, std::move(linear));
  rule.find(phased)->kind = FactorKind::kPhased;
  return rule;
}

}  // namespace tessera::ops
