// AdamW (Loshchilov and Hutter, Decoupled Weight Decay Regularization): state "<parameter>.m" and
// "<parameter>.v".
#include "graph/optim/optimizers.h"

namespace tessera {

std::map<std::string, double> adamw_defaults() {
  return {{"beta1", 0.9}, {"beta2", 0.999}, {"eps", 1e-8}, {"weight_decay", 0.01}};
}

Status emit_adamw(const OptimizerContext& context, const std::map<std::string, double>& hyper) {
  TSR_ASSIGN_OR_RETURN(const TensorId m, add_optimizer_state(context, "m"));
  TSR_ASSIGN_OR_RETURN(const TensorId v, add_optimizer_state(context, "v"));
  const TensorId state[] = {m, v};
  const TensorId scalars[] = {context.lr, context.step};
  return emit_update(context, "adamw_update", state, scalars, hyper);
}

}  // namespace tessera
