#include "engine/planning/joint_plan.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "engine/model/weight_pool.h"
#include "engine/planning/planning.h"
#include "engine/planning/serving_plan.h"
#include "engine/program/trained_weights.h"
#include "engine/serving/pages/fitted_pages.h"
#include "engine/serving/texts/engine_settings.h"
#include "graph/base/text.h"
#include "runtime/arranged_weights.h"
#include "text/json.h"

namespace tessera {
namespace {

// PlannedBytes: what one handle holds, by device, and those bytes of it that are counted elsewhere.
struct PlannedBytes {
  std::vector<int64_t> devices;
  int64_t host = 0;    // offloaded, in addition
  int64_t shared = 0;  // weights in memory of the trainer, or of an earlier engine
  int64_t total() const {
    int64_t sum = host - shared;
    for (const int64_t bytes : devices) sum += bytes;
    return sum;
  }
};

PlannedBytes bytes_of(const Program& program) {
  PlannedBytes bytes;
  for (const RankProgram& rank : program.ranks) {
    bytes.devices.push_back(rank.arena_bytes);
    bytes.host += rank.host_arena_bytes;
  }
  return bytes;
}

int64_t weight_bytes(const Program& program) {
  int64_t bytes = 0;
  for (const RankProgram& rank : program.ranks)
    for (const Slot& slot : rank.slots)
      if (slot.kind == SlotKind::kParameter && slot.tier == Tier::kDevice) bytes += slot.bytes;
  return bytes;
}

// An engine of tsr_engine_new_for_trainer: all of its weights are the trainer's.
Result<PlannedBytes> plan_on_trainer(const SharedModel& model, const CompiledTraining& training, const Options& options) {
  if (training.settings.step.fp8_matmuls)
    return Status(StatusCode::kUnsupported, "the trainer's precision is fp8: wanted f32, tf32, bf16 or f16");
  TSR_RETURN_IF_ERROR(TrainedWeights::check_options(options, "engine"));
  TSR_ASSIGN_OR_RETURN(EngineSettings read, read_engine_settings(options, &model));
  ServingSettings given = std::move(read.serving);
  const PlanRecord& record = *training.compiled.record;
  TSR_ASSIGN_OR_RETURN(given.compute, compute_beside_trainer(training.settings, record, training.compiled.program,
                                                             given.compute.memory_limit));
  const ChosenPages chosen = chosen_pages(given);
  const Graph forward = model.graph();
  TSR_ASSIGN_OR_RETURN(ServingSettings settings, finalized(std::move(given), forward, model.context_length()));
  const TrainedPlan along{training.settings, record.entries};
  TSR_ASSIGN_OR_RETURN(const CompiledProgram compiled, compile_fitting(forward, settings, chosen, training.devices, &along));
  PlannedBytes bytes = bytes_of(compiled.program);
  bytes.shared = weight_bytes(compiled.program);
  return bytes;
}

// Engines of the trainer's model. Devices that share cores hold read-only weights of equal layout once for all of them.
Result<std::vector<PlannedBytes>> plan_on_model(Runtime& runtime, const SharedModel& model, const CompiledTraining& training,
                                                const Options& options, int64_t engines) {
  TSR_ASSIGN_OR_RETURN(CompiledProgram compiled, plan_serving(runtime, model, options));
  TSR_ASSIGN_OR_RETURN(const EngineSettings read, read_engine_settings(options, &model));
  const ServingPlan& serving = *compiled.record->serving;
  TSR_ASSIGN_OR_RETURN(const auto devices,
                       runtime.open_devices(compiled.record->devices_text, read.serving.compute.profile));
  if (read.serving.inference.repack) take_arranged_variants(compiled.program, *devices);
  const bool shares = compiled.record->cluster.shared_cores > 0 && training.compiled.record->cluster.shared_cores > 0;
  std::map<std::string, int64_t> held;
  if (shares) held = find_weight_parts(training.compiled.program);
  std::vector<PlannedBytes> planned;
  for (int64_t engine = 0; engine < engines; ++engine) {
    PlannedBytes& bytes = planned.emplace_back();
    for (const ServingPlan::Device& device : serving.devices) bytes.devices.push_back(device.arena_bytes + device.draft_bytes);
    for (int64_t replica = 0; shares && replica < serving.replicas; ++replica)
      for (const auto& [key, part] : find_weight_parts(compiled.program))
        if (!held.emplace(key, part).second) bytes.shared += part;
  }
  return planned;
}

Json json_of(const PlannedBytes& bytes) {
  return {{"devices", bytes.devices}, {"host_bytes", bytes.host}, {"shared_bytes", bytes.shared}, {"bytes", bytes.total()}};
}

// The memory of all devices of the trainer.
int64_t memory_of(const Cluster& cluster) {
  int64_t bytes = 0;
  for (const int32_t kind : cluster.devices) bytes += cluster.kinds[static_cast<size_t>(kind)].memory_bytes;
  return bytes;
}

}  // namespace

Result<std::string> plan_jointly(Runtime& runtime, const SharedModel& model, const Dataset* dataset,
                                 const Options& trainer, const Options& engine, const Options& options) {
  OptionReader reader(options, "joint plan");
  const int64_t engines = reader.i64("engines", 1, 0, 1024);
  const std::string weights = reader.choice("weights", "trainer", {"trainer", "model"});
  const int64_t asked = reader.bytes("memory_limit", 0);
  TSR_RETURN_IF_ERROR(reader.finish());
  TSR_ASSIGN_OR_RETURN(const CompiledTraining training, compiled_training(runtime, model, dataset, trainer));
  const PlannedBytes of_trainer = bytes_of(training.compiled.program);
  std::vector<PlannedBytes> of_engines;
  if (engines > 0 && weights == "trainer") {
    TSR_ASSIGN_OR_RETURN(const PlannedBytes each, plan_on_trainer(model, training, engine));
    of_engines.assign(static_cast<size_t>(engines), each);
  } else if (engines > 0) {
    TSR_ASSIGN_OR_RETURN(of_engines, plan_on_model(runtime, model, training, engine, engines));
  }
  Json report{{"trainer", json_of(of_trainer)}, {"engines", Json::array()}};
  int64_t total = of_trainer.total();
  for (const PlannedBytes& each : of_engines) {
    report["engines"].push_back(json_of(each));
    total += each.total();
  }
  const int64_t limit = asked > 0 ? asked : memory_of(training.compiled.record->cluster);
  if (limit > 0 && total > limit)
    return Status(StatusCode::kOutOfMemory,
                  format("the trainer takes {}, {} engines {} more, together {} ({} bytes), the limit is {} ({} bytes): fewer "
                         "sequences or cache_tokens of engines, or a smaller batch of the trainer, take less",
                         bytes_text(of_trainer.total()), engines, bytes_text(total - of_trainer.total()), bytes_text(total), total,
                         bytes_text(limit), limit))
        .with_number("needed_bytes", total)
        .with_number("limit_bytes", limit);
  report["bytes"] = total;
  report["limit_bytes"] = limit;
  return dump(report);
}

}  // namespace tessera
