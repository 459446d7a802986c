#include "parallel/analytic/memory_floor.h"

#include <algorithm>

#include "graph/base/text.h"
#include "parallel/analytic/stage_time.h"

namespace tessera {

namespace {

// Of every device, whatever it holds; and what all of them hold of the model together, at least.
struct Held {
  int64_t each = 0, together = 0;
};

Held held(const TransformerShape& model, const Cluster& cluster, const StepSearchOptions& options,
          bool away) {
  // One device with everything: no plan has less of the model on all its devices together.
  ForeignPlan whole = options.features;
  whole.tp = whole.dp = whole.pp = whole.cp = whole.ep = whole.virtual_stages = 1;
  whole.form = TensorForm::k1d, whole.grid = {1, 1, 1}, whole.context = ContextForm::kNone;
  whole.zero = whole.sharded_attention = whole.sharded_mlp = 0;
  if (away) whole.offload_params = whole.offload_optimizer = 4;
  const StageMemory memory = StageTimes(model, whole, cluster).memory({model.L, model.L, 0}, true, true, 1);
  return {memory.reserved, memory.parameters + memory.gradients + memory.optimizer};
}

// Bytes by which the parts of a device may be rounded down.
constexpr int64_t kRounding = 8;

int64_t enough_devices(const Held& all, int64_t limit) {
  const int64_t room = limit - all.each + kRounding;
  if (room <= 0) return INT64_MAX;
  return std::max<int64_t>(1, (all.together + room - 1) / room);
}

bool is_pinned(const StepSearchOptions& options) {
  return options.tp || options.dp || options.pp || options.zero || options.virtual_stages ||
         options.micro_batch || options.recompute || options.schedule || options.cp || options.ep ||
         options.pin_sequence_parallel || options.features.form != TensorForm::k1d;
}

bool may_leave(const StepSearchOptions& options) { return options.offload || options.last_resort; }

}  // namespace

int64_t devices_by_floor(const TransformerShape& model, const Cluster& cluster,
                         const StepSearchOptions& options, int64_t limit) {
  return enough_devices(held(model, cluster, options, false), limit);
}

int64_t memory_limit_of(const Cluster& cluster, const StepSearchOptions& options) {
  return options.memory_limit > 0 ? options.memory_limit : cluster.kinds[0].memory_bytes;
}

std::optional<Status> surely_too_large(const TransformerShape& model, const Cluster& cluster,
                                       const StepSearchOptions& options) {
  if (!options.wide || is_pinned(options) || cluster.devices.empty()) return std::nullopt;
  const int64_t limit = memory_limit_of(cluster, options);
  const auto devices = static_cast<int64_t>(cluster.devices.size());
  if (enough_devices(held(model, cluster, options, may_leave(options)), limit) <= devices)
    return std::nullopt;
  return Status(StatusCode::kOutOfMemory,
                format("no plan fits {} a device, whatever is sharded, recomputed or left on the host",
                       bytes_text(limit)));
}

bool surely_too_large(const TransformerShape& model, std::span<const Cluster> kinds,
                      const StepSearchOptions& options) {
  // Such pipelines leave nothing on the host.
  int64_t room = 0, needed = 0;
  for (const Cluster& cluster : kinds) {
    const Held all = held(model, cluster, options, false);
    const int64_t each = memory_limit_of(cluster, options) - all.each + kRounding;
    room += std::max<int64_t>(0, each) * static_cast<int64_t>(cluster.devices.size());
    needed = needed == 0 ? all.together : std::min(needed, all.together);
  }
  return needed > room;
}

}  // namespace tessera
