// Phases of layer_norm and rms_norm over a split channel: local statistics, which add up over
// the shards, and ops that compute the results from them. The number of channels is the factor's
// global extent, so a shard divides by the whole. For lowering; models use the ops themselves.
#include "graph/base/text.h"
#include "graph/ops/op_support.h"

namespace tessera {

using namespace ops;

namespace {

std::string rows_of(const OpView& view) { return leading_letters(view.inputs[0].shape.rank() - 1, "c"); }

TensorType statistic_of(const TensorType& rows) {
  return {statistics_dtype(rows.dtype), without_last(rows.shape)};
}

// Operand 0: rows [..., C] of reals.
Status check_rows(std::string_view op, Types in, std::string_view name) {
  TSR_RETURN_IF_ERROR(check_float(op, in, 0, name));
  return check_rank_at_least(op, in, 0, name, 1);
}

Status check_channels(std::string_view op, Types in, int i, std::string_view name) {
  TSR_RETURN_IF_ERROR(check_dtype(op, in, i, name, in[0].dtype));
  return check_shape(op, in, i, name, Shape{last_extent(in[0].shape)});
}

// Statistics from operand `first` on, by name.
Status check_statistics(std::string_view op, Types in, int first,
                        std::initializer_list<std::string_view> names) {
  for (const std::string_view name : names)
    TSR_RETURN_IF_ERROR(check_row_statistic(op, in, first++, name, in[0]));
  return {};
}

}  // namespace

// row_sum(x)[...] = sum_c x[..., c]
//   x [..., C] -> s [...] (f64 in an f64 graph, else f32).  Linear in x.
namespace row_sum {

constexpr std::string_view kName = "row_sum";

Inferred infer(Types in, Attrs) {
  TSR_RETURN_IF_ERROR(check_count(kName, in, 1));
  TSR_RETURN_IF_ERROR(check_rows(kName, in, "x"));
  return std::vector<TensorType>{statistic_of(in[0])};
}

ShardingRule sharding(const OpView& view) {
  const std::string rows = rows_of(view);
  return make_rule(rows + "c->" + rows, {{0}});
}

OpCost cost(const OpView& view) {
  return traffic_cost(view, static_cast<double>(view.inputs[0].shape.elements()));
}

}  // namespace row_sum

extern const OpDef kRowSum = {
    .name = row_sum::kName, .infer = row_sum::infer, .sharding = row_sum::sharding, .cost = row_sum::cost};

// row_sum_squares(x, s)[...] = sum_c (x[..., c] - s[...] / C)^2; without s, sum_c x[..., c]^2
//   x [..., C], s [...] optional -> ss [...] (f64 in an f64 graph, else f32)
namespace row_sum_squares {

constexpr std::string_view kName = "row_sum_squares";

Inferred infer(Types in, Attrs) {
  TSR_RETURN_IF_ERROR(check_count(kName, in, 1, 2));
  TSR_RETURN_IF_ERROR(check_rows(kName, in, "x"));
  if (in.size() == 2) TSR_RETURN_IF_ERROR(check_statistics(kName, in, 1, {"s"}));
  return std::vector<TensorType>{statistic_of(in[0])};
}

ShardingRule sharding(const OpView& view) {
  const std::string rows = rows_of(view);
  return make_rule(rows + "c" + (view.inputs.size() == 2 ? "," + rows : "") + "->" + rows);
}

OpCost cost(const OpView& view) {
  return traffic_cost(view, 3.0 * static_cast<double>(view.inputs[0].shape.elements()));
}

}  // namespace row_sum_squares

extern const OpDef kRowSumSquares = {.name = row_sum_squares::kName,
                                     .infer = row_sum_squares::infer,
                                     .sharding = row_sum_squares::sharding,
                                     .cost = row_sum_squares::cost};

// layer_norm_finish(x, w, b, s, ss): mean = s / C, rstd = 1 / sqrt(ss / C + eps), y = (x - mean) * rstd * w +
// b
//   x [..., C], w, b [C], s, ss [...] -> y [..., C], mean [...], rstd [...]
namespace layer_norm_finish {

constexpr std::string_view kName = "layer_norm_finish";
const AttrSpec kAttrs[] = {{"eps", AttrType::kF64, 1e-5, "added to the variance"}};

Inferred infer(Types in, Attrs) {
  TSR_RETURN_IF_ERROR(check_count(kName, in, 5));
  TSR_RETURN_IF_ERROR(check_rows(kName, in, "x"));
  TSR_RETURN_IF_ERROR(check_channels(kName, in, 1, "w"));
  TSR_RETURN_IF_ERROR(check_channels(kName, in, 2, "b"));
  TSR_RETURN_IF_ERROR(check_statistics(kName, in, 3, {"s", "ss"}));
  return std::vector<TensorType>{in[0], in[3], in[3]};
}

ShardingRule sharding(const OpView& view) {
  const std::string r = rows_of(view);
  return make_rule(format("{}c,c,c,{},{}->{}c,{},{}", r, r, r, r, r, r));
}

OpCost cost(const OpView& view) { return elementwise_cost(view, 4); }

}  // namespace layer_norm_finish

extern const OpDef kLayerNormFinish = {.name = layer_norm_finish::kName,
                                       .attrs = layer_norm_finish::kAttrs,
                                       .infer = layer_norm_finish::infer,
                                       .sharding = layer_norm_finish::sharding,
                                       .cost = layer_norm_finish::cost};

// layer_norm_grad_sums(dy, x, w, mean, rstd): sg = sum_c dy * w, sgx = sum_c dy * w * (x - mean) * rstd
//   dy, x [..., C], w [C], mean, rstd [...] -> sg, sgx [...].  Linear in dy.
namespace layer_norm_grad_sums {

constexpr std::string_view kName = "layer_norm_grad_sums";

Inferred infer(Types in, Attrs) {
  TSR_RETURN_IF_ERROR(check_count(kName, in, 5));
  TSR_RETURN_IF_ERROR(check_rows(kName, in, "dy"));
  TSR_RETURN_IF_ERROR(check_same_type(kName, in, 1, 0));
  TSR_RETURN_IF_ERROR(check_channels(kName, in, 2, "w"));
  TSR_RETURN_IF_ERROR(check_statistics(kName, in, 3, {"mean", "rstd"}));
  return std::vector<TensorType>{in[3], in[3]};
}

ShardingRule sharding(const OpView& view) {
  const std::string r = rows_of(view);
  return make_rule(format("{}c,{}c,c,{},{}->{},{}", r, r, r, r, r, r), {{0}});
}

OpCost cost(const OpView& view) {
  return traffic_cost(view, 6.0 * static_cast<double>(view.inputs[0].shape.elements()));
}

}  // namespace layer_norm_grad_sums

extern const OpDef kLayerNormGradSums = {.name = layer_norm_grad_sums::kName,
                                         .infer = layer_norm_grad_sums::infer,
                                         .sharding = layer_norm_grad_sums::sharding,
                                         .cost = layer_norm_grad_sums::cost};

// layer_norm_grad_finish(dy, x, w, mean, rstd, sg, sgx) = rstd * (dy * w - sg / C - xhat * sgx / C)
//   dy, x [..., C], w [C], mean, rstd, sg, sgx [...] -> dx [..., C].  Linear in {dy, sg, sgx} together.
namespace layer_norm_grad_finish {

constexpr std::string_view kName = "layer_norm_grad_finish";

Inferred infer(Types in, Attrs) {
  TSR_RETURN_IF_ERROR(check_count(kName, in, 7));
  TSR_RETURN_IF_ERROR(check_rows(kName, in, "dy"));
  TSR_RETURN_IF_ERROR(check_same_type(kName, in, 1, 0));
  TSR_RETURN_IF_ERROR(check_channels(kName, in, 2, "w"));
  TSR_RETURN_IF_ERROR(check_statistics(kName, in, 3, {"mean", "rstd", "sg", "sgx"}));
  return std::vector<TensorType>{in[0]};
}

ShardingRule sharding(const OpView& view) {
  const std::string r = rows_of(view);
  return make_rule(format("{}c,{}c,c,{},{},{},{}->{}c", r, r, r, r, r, r, r), {{0, 5, 6}});
}

OpCost cost(const OpView& view) { return elementwise_cost(view, 7); }

}  // namespace layer_norm_grad_finish

extern const OpDef kLayerNormGradFinish = {.name = layer_norm_grad_finish::kName,
                                           .infer = layer_norm_grad_finish::infer,
                                           .sharding = layer_norm_grad_finish::sharding,
                                           .cost = layer_norm_grad_finish::cost};

// rms_norm_finish(x, w, ss): rstd = 1 / sqrt(ss / C + eps), y = x * rstd * w
//   x [..., C], w [C], ss [...] -> y [..., C], rstd [...]
namespace rms_norm_finish {

constexpr std::string_view kName = "rms_norm_finish";
const AttrSpec kAttrs[] = {{"eps", AttrType::kF64, 1e-5, "added to the mean square"}};

Inferred infer(Types in, Attrs) {
  TSR_RETURN_IF_ERROR(check_count(kName, in, 3));
  TSR_RETURN_IF_ERROR(check_rows(kName, in, "x"));
  TSR_RETURN_IF_ERROR(check_channels(kName, in, 1, "w"));
  TSR_RETURN_IF_ERROR(check_statistics(kName, in, 2, {"ss"}));
  return std::vector<TensorType>{in[0], in[2]};
}

ShardingRule sharding(const OpView& view) {
  const std::string r = rows_of(view);
  return make_rule(format("{}c,c,{}->{}c,{}", r, r, r, r));
}

OpCost cost(const OpView& view) { return elementwise_cost(view, 2); }

}  // namespace rms_norm_finish

extern const OpDef kRmsNormFinish = {.name = rms_norm_finish::kName,
                                     .attrs = rms_norm_finish::kAttrs,
                                     .infer = rms_norm_finish::infer,
                                     .sharding = rms_norm_finish::sharding,
                                     .cost = rms_norm_finish::cost};

// rms_norm_grad_sums(dy, x, w, rstd): sgx = sum_c dy * w * x * rstd
//   dy, x [..., C], w [C], rstd [...] -> sgx [...].  Linear in dy.
namespace rms_norm_grad_sums {

constexpr std::string_view kName = "rms_norm_grad_sums";

Inferred infer(Types in, Attrs) {
  TSR_RETURN_IF_ERROR(check_count(kName, in, 4));
  TSR_RETURN_IF_ERROR(check_rows(kName, in, "dy"));
  TSR_RETURN_IF_ERROR(check_same_type(kName, in, 1, 0));
  TSR_RETURN_IF_ERROR(check_channels(kName, in, 2, "w"));
  TSR_RETURN_IF_ERROR(check_statistics(kName, in, 3, {"rstd"}));
  return std::vector<TensorType>{in[3]};
}

ShardingRule sharding(const OpView& view) {
  const std::string r = rows_of(view);
  return make_rule(format("{}c,{}c,c,{}->{}", r, r, r, r), {{0}});
}

OpCost cost(const OpView& view) {
  return traffic_cost(view, 4.0 * static_cast<double>(view.inputs[0].shape.elements()));
}

}  // namespace rms_norm_grad_sums

extern const OpDef kRmsNormGradSums = {.name = rms_norm_grad_sums::kName,
                                       .infer = rms_norm_grad_sums::infer,
                                       .sharding = rms_norm_grad_sums::sharding,
                                       .cost = rms_norm_grad_sums::cost};

// rms_norm_grad_finish(dy, x, w, rstd, sgx) = rstd * (dy * w - x * rstd * sgx / C)
//   dy, x [..., C], w [C], rstd, sgx [...] -> dx [..., C].  Linear in {dy, sgx} together.
namespace rms_norm_grad_finish {

constexpr std::string_view kName = "rms_norm_grad_finish";

Inferred infer(Types in, Attrs) {
  TSR_RETURN_IF_ERROR(check_count(kName, in, 5));
  TSR_RETURN_IF_ERROR(check_rows(kName, in, "dy"));
  TSR_RETURN_IF_ERROR(check_same_type(kName, in, 1, 0));
  TSR_RETURN_IF_ERROR(check_channels(kName, in, 2, "w"));
  TSR_RETURN_IF_ERROR(check_statistics(kName, in, 3, {"rstd", "sgx"}));
  return std::vector<TensorType>{in[0]};
}

ShardingRule sharding(const OpView& view) {
  const std::string r = rows_of(view);
  return make_rule(format("{}c,{}c,c,{},{}->{}c", r, r, r, r, r), {{0, 4}});
}

OpCost cost(const OpView& view) { return elementwise_cost(view, 5); }

}  // namespace rms_norm_grad_finish

extern const OpDef kRmsNormGradFinish = {.name = rms_norm_grad_finish::kName,
                                         .infer = rms_norm_grad_finish::infer,
                                         .sharding = rms_norm_grad_finish::sharding,
                                         .cost = rms_norm_grad_finish::cost};

}  // namespace tessera
