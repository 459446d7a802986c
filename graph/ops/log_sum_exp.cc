// log_sum_exp(x)[...] = log(sum_v exp(x[..., v])), -inf for an empty row
//   x [..., V] -> y [...] of the same dtype.  v is whole. For short rows (a router's z-loss); a cross entropy
//   over a vocabulary has ops for its phases.
#include "graph/base/text.h"
#include "graph/ops/op_support.h"

namespace tessera {

using namespace ops;

namespace log_sum_exp {

constexpr std::string_view kName = "log_sum_exp";

Inferred infer(Types in, Attrs) {
  TSR_RETURN_IF_ERROR(check_count(kName, in, 1));
  TSR_RETURN_IF_ERROR(check_float(kName, in, 0, "x"));
  TSR_RETURN_IF_ERROR(check_rank_at_least(kName, in, 0, "x", 1));
  return std::vector<TensorType>{{in[0].dtype, without_last(in[0].shape)}};
}

// dx = dy * softmax(x)
Status vjp(VjpBuilder& b) {
  const auto dy = b.output_grad(0);
  if (!dy) return {};
  return set_grad(b, 0, [&]() -> Result<TensorId> {
    const std::vector<int64_t> last = {b.input_type(0).shape.rank() - 1};
    TSR_ASSIGN_OR_RETURN(const TensorId weights, b.emit("softmax", {b.input(0)}));
    TSR_ASSIGN_OR_RETURN(const TensorId each, b.emit("broadcast", {*dy, b.input(0)}, {{"axes", last}}));
    return b.emit("mul", {each, weights});
  });
}

ShardingRule sharding(const OpView& view) {
  const std::string rows = leading_letters(view.inputs[0].shape.rank() - 1, "v");
  return make_rule(format("{}v->{}", rows, rows), {}, "v");
}

OpCost cost(const OpView& view) {
  return traffic_cost(view, 5 * static_cast<double>(view.inputs[0].shape.elements()));
}

}  // namespace log_sum_exp

extern const OpDef kLogSumExp = {.name = log_sum_exp::kName,
                                 .infer = log_sum_exp::infer,
                                 .vjp = log_sum_exp::vjp,
                                 .sharding = log_sum_exp::sharding,
                                 .cost = log_sum_exp::cost};

}  // namespace tessera
