// SGD with momentum: state "<parameter>.momentum".
#include "graph/optim/optimizers.h"

namespace tessera {

namespace {

constexpr OptimizerSetting kSgdSettings[] = {{"momentum", 0.9}, {"weight_decay", 0.0, 0, kMostDecay}};
constexpr std::string_view kSgdForeignNames[] = {"momentum"};

Status emit_sgd(const OptimizerContext& context, const std::map<std::string, double>& hyper) {
  TSR_ASSIGN_OR_RETURN(const TensorId momentum, add_optimizer_state(context, "momentum"));
  return emit_update(context, "sgd_update", {&momentum, 1}, {&context.lr, 1}, hyper);
}

}  // namespace

extern const OptimizerDef kSgd = {.name = "sgd",
                                  .settings = kSgdSettings,
                                  .emit = emit_sgd,
                                  .foreign_names = kSgdForeignNames,
                                  .has_step_settings = true};

}  // namespace tessera
