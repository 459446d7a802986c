#include "tests/conformance/plan_edits.h"

#include "parallel/sharding/node_sharding.h"

namespace tessera::parity {

// none is).
PlanEdit chunk_products(int32_t g) {
  return [=](const Graph& step, Plan& plan) -> Status {
    for (size_t n = 0; n < plan.nodes.size(); ++n) {
      const Node& node = step.nodes()[n];
      const bool product = node.op->name == "matmul", gradient = node.op->name == "matmul_weight_grad";
      if (!product && !gradient) continue;
      const TensorId weight = product ? node.inputs[1] : node.outputs[0];
      TSR_ASSIGN_OR_RETURN(const ShardingRule rule, rule_of(step, node));
      const ShardingRule::OperandDims& dims = product ? rule.inputs[1] : rule.outputs[0];
      size_t dim = product && attr_i64(node.attrs, "trans_w") == 0 ? 0 : 1;
      if (const StoredTensor* stored = plan.find_stored(weight))
        for (size_t d = 0; d < dims.size(); ++d)
          if (!stored->placements[0].stored.dims[d].axes.empty()) dim = d;
      plan.nodes[n].chunk_factor = dims[dim][0];
      plan.nodes[n].chunks = g;
    }
    return {};
  };
}

}  // namespace tessera::parity
