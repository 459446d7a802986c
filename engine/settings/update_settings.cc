#include "engine/settings/update_settings.h"

#include "graph/base/text.h"
#include "graph/optim/optimizer.h"

namespace tessera {

UpdateSettings planned_update(const TrainingOptions& step) {
  UpdateSettings settings;
  if (const OptimizerDef* optimizer = find_optimizer(step.optimizer.name))
    settings.values = defaults_of(*optimizer);
  for (const auto& [name, value] : step.optimizer.hyper) settings.values[name] = value;
  settings.values["clip_norm"] = step.clip_norm;
  return settings;
}

UpdateSettings read_update(OptionReader& reader, const TrainingOptions& step) {
  UpdateSettings settings = planned_update(step);
  settings.values["clip_norm"] = reader.f64("clip_norm", step.clip_norm, 0, 1e30);
  const OptimizerDef* optimizer = find_optimizer(step.optimizer.name);
  if (optimizer == nullptr) return settings;
  for (const OptimizerSetting& setting : optimizer->settings) {
    const std::string name(setting.name);
    if (!reader.has(name)) continue;
    settings.values[name] = reader.f64(name, setting.default_value, setting.low, setting.high);
    if (!optimizer->has_step_settings)
      reader.fail(
          Status(StatusCode::kInvalidArgument, format("optimizer step: option '{}' of optimizer '{}' is "
                                                      "fixed when the trainer is made: wanted lr and "
                                                      "clip_norm",
                                                      name, optimizer->name)));
  }
  return settings;
}

}  // namespace tessera
