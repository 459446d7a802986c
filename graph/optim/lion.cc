// Lion (Chen et al., "Symbolic discovery of optimization algorithms", NeurIPS 2023): state "<parameter>.m".
#include "graph/optim/optimizers.h"

namespace tessera {

namespace {

constexpr OptimizerSetting kLionSettings[] = {
    {"beta1", 0.9, 0, kMostBeta}, {"beta2", 0.99, 0, kMostBeta}, {"weight_decay", 0.0, 0, kMostDecay}};
constexpr std::string_view kLionForeignNames[] = {"lion_8bit"};

Status emit_lion(const OptimizerContext& context, const std::map<std::string, double>& hyper) {
  TSR_ASSIGN_OR_RETURN(const TensorId m, add_optimizer_state(context, "m"));
  return emit_update(context, "lion_update", {&m, 1}, {&context.lr, 1}, hyper);
}

}  // namespace

extern const OptimizerDef kLion = {.name = "lion",
                                   .settings = kLionSettings,
                                   .emit = emit_lion,
                                   .foreign_names = kLionForeignNames,
                                   .has_step_settings = true};

}  // namespace tessera
