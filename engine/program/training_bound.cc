// The bound of the planned entry (least_bytes_of_entries); the smaller one where the loss may be fused or not.
#include "engine/program/training_bound.h"

#include <algorithm>
#include <cstdint>

#include "engine/program/compile.h"
#include "engine/program/entry_plans.h"
#include "engine/program/training_graphs.h"

namespace tessera {

namespace {

// With a loss that is fused or not, as `settings` say.
int64_t bound_with_loss(const Graph& forward, bool language_model, const TrainerSettings& settings,
                        const DeviceSet& devices) {
  const auto graphs = training_graphs(forward, language_model, settings);
  if (!graphs.ok()) return 0;
  const auto least = least_bytes_of_entries(*graphs, settings.compute, settings.batch, devices);
  return least.ok() ? *least : 0;
}

}  // namespace

int64_t least_training_bytes(const Graph& forward, bool language_model, const TrainerSettings& given,
                             const DeviceSet& devices) {
  TrainerSettings settings = finalized(given, devices);
  if (settings.fused_loss != FusedLoss::kAuto) return bound_with_loss(forward, language_model, settings, devices);
  int64_t least = INT64_MAX;
  for (const FusedLoss form : {FusedLoss::kOff, FusedLoss::kOn}) {
    if (form == FusedLoss::kOn && !language_model) continue;
    settings.fused_loss = form;
    least = std::min(least, bound_with_loss(forward, language_model, settings, devices));
  }
  return least;
}

}  // namespace tessera
