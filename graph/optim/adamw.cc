// AdamW (Loshchilov and Hutter, Decoupled Weight Decay Regularization): state "<parameter>.m" and
// "<parameter>.v".
#include "graph/optim/optimizers.h"

namespace tessera {

namespace {
constexpr std::string_view kAdamwForeignNames[] = {"adam", "adamw_torch", "adamw_torch_fused", "adamw_hf"};
}  // namespace

Status emit_adamw(const OptimizerContext& context, const std::map<std::string, double>& hyper) {
  TSR_ASSIGN_OR_RETURN(const TensorId m, add_optimizer_state(context, "m"));
  TSR_ASSIGN_OR_RETURN(const TensorId v, add_optimizer_state(context, "v"));
  const TensorId state[] = {m, v};
  const TensorId scalars[] = {context.lr, context.step};
  return emit_update(context, "adamw_update", state, scalars, hyper);
}

extern const OptimizerDef kAdamw = {.name = "adamw",
                                    .settings = kAdamwSettings,
                                    .emit = emit_adamw,
                                    .foreign_names = kAdamwForeignNames,
                                    .has_step_settings = true};

}  // namespace tessera
