// Attention with a sink (Xiao et al., 2024): one more logit a head in the denominator, without a value.
#include "graph/base/text.h"
#include "graph/ops/op_support.h"

namespace tessera {

using namespace ops;

namespace {

// out [B, T, H, V], lse [B, T, H] and sinks [H], both statistics, from operand `first` on.
Status check_sink_operands(std::string_view op, Types in, int first) {
  TSR_RETURN_IF_ERROR(check_float(op, in, first, "out"));
  TSR_RETURN_IF_ERROR(check_rank(op, in, first, "out", 4));
  const TensorType& out = in[static_cast<size_t>(first)];
  TSR_RETURN_IF_ERROR(check_row_statistic(op, in, first + 1, "lse", out));
  TSR_RETURN_IF_ERROR(check_dtype(op, in, first + 2, "sinks", statistics_dtype(out.dtype)));
  return check_shape(op, in, first + 2, "sinks", Shape{out.shape[2]});
}

}  // namespace

// attention_sink(out, lse, sinks): attention's results over its keys -> what they are with exp(sinks[h]) added to the
// sum that weights are divided by:  y = out * g,  g = sigmoid(lse - sinks[h])
//   out [B, T, H, V], lse [B, T, H], sinks [H] (f64 in an f64 graph, else f32) -> y [B, T, H, V].  A query that sees no
//   key (lse -inf) gives 0.
namespace attention_sink {

constexpr std::string_view kName = "attention_sink";

Inferred infer(Types in, Attrs) {
  TSR_RETURN_IF_ERROR(check_count(kName, in, 3));
  TSR_RETURN_IF_ERROR(check_sink_operands(kName, in, 0));
  return std::vector<TensorType>{in[0]};
}

Status vjp(VjpBuilder& b) {
  const auto dy = b.output_grad(0);
  if (!dy) return {};
  const TensorId operands[] = {*dy, b.input(0), b.input(1), b.input(2)};
  TSR_ASSIGN_OR_RETURN(const auto grads, b.emit_all("attention_sink_grad", operands));
  for (const int i : {0, 1, 2})
    if (b.needs_grad(i)) TSR_RETURN_IF_ERROR(b.set_input_grad(i, grads[static_cast<size_t>(i)]));
  return {};
}

ShardingRule sharding(const OpView&) { return make_rule("bthd,bth,h->bthd", {{0}}); }

}  // namespace attention_sink

extern const OpDef kAttentionSink = {.name = attention_sink::kName,
                                     .infer = attention_sink::infer,
                                     .vjp = attention_sink::vjp,
                                     .sharding = attention_sink::sharding,
                                     .cost = elementwise_cost<1>,
                                     .in_place = kInPlaceFirst};

// attention_sink_grad(dy, out, lse, sinks):
//   dout = dy * g,   dlse[b, t, h] = g (1 - g) sum_v dy * out,   dsinks[h] = -sum_{b, t} dlse
//   dy, out [B, T, H, V], lse [B, T, H], sinks [H] -> dout [B, T, H, V], dlse [B, T, H], dsinks [H].  Linear in dy.
namespace attention_sink_grad {

constexpr std::string_view kName = "attention_sink_grad";

Inferred infer(Types in, Attrs) {
  TSR_RETURN_IF_ERROR(check_count(kName, in, 4));
  TSR_RETURN_IF_ERROR(check_sink_operands(kName, in, 1));
  TSR_RETURN_IF_ERROR(check_same_type(kName, in, 0, 1));
  return std::vector<TensorType>{in[0], in[2], in[3]};
}

ShardingRule sharding(const OpView&) {
  ShardingRule rule = make_rule("bthd,bthd,bth,h->bthd,bth,h", {{0}});
  reduce_too(rule, "btd");
  return rule;
}

}  // namespace attention_sink_grad

extern const OpDef kAttentionSinkGrad = {.name = attention_sink_grad::kName,
                                         .infer = attention_sink_grad::infer,
                                         .sharding = attention_sink_grad::sharding,
                                         .cost = elementwise_cost<3>,
                                         .in_place = kInPlaceFirst};

}  // namespace tessera
