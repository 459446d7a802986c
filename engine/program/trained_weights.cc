#include "engine/program/trained_weights.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "graph/base/status_codes.h"
#include "graph/base/text.h"
#include "parallel/pricing/host_tier.h"
#include "runtime/lent_weights.h"

namespace tessera {

Result<std::shared_ptr<const TrainedWeights>> TrainedWeights::of(std::shared_ptr<WeightOwner> trainer) {
  TSR_RETURN_IF_ERROR(trainer->usable());
  TSR_RETURN_IF_ERROR(trainer->runtime()->check_alone("inference on a trainer's weights"));
  if (trainer->settings().step.fp8_matmuls)
    return Status(StatusCode::kUnsupported,
                  "the trainer's precision is fp8, whose products depend on all tokens of a batch: wanted a "
                  "trainer of precision f32, tf32, bf16 or f16");
  return std::shared_ptr<const TrainedWeights>(new TrainedWeights(std::move(trainer)));
}

Status TrainedWeights::check_options(const Options& options, std::string_view consumer) {
  const Options none;
  OptionReader reader(none, std::string(consumer));
  (void)read_compute(reader);
  (void)read_inference(reader, consumer);
  for (const std::string& key : reader.known())
    if (key != "memory_limit" && options.contains(key))
      return Status(StatusCode::kInvalidArgument,
                    format("{}: option '{}' is set by the trainer whose weights it reads: wanted it there, "
                           "at tsr_trainer_new",
                           consumer, key));
  return {};
}

// The trainer's whole arena counts, minus its weights, which the other program's bytes include.
Result<ComputeSettings> compute_beside_trainer(const TrainerSettings& settings, const PlanRecord& record,
                                               const Program& program, int64_t memory_limit) {
  ComputeSettings compute = settings.compute;
  const int64_t limit = memory_limit > 0 ? memory_limit : limit_of(record.cluster, compute.memory_limit);
  compute.plan_file.clear();
  compute.pins = {};
  compute.measure = 0;
  compute.tune = compute.trace = false;
  compute.host_memory_limit = 0;
  compute.memory_limit = limit;
  if (limit == 0) return compute;
  for (const RankProgram& rank : program.ranks) {
    int64_t weights = 0;
    for (const Slot& slot : rank.slots)
      if (slot.kind == SlotKind::kParameter && slot.tier == Tier::kDevice) weights += slot.bytes;
    const int64_t others = limited_bytes(rank, record.cluster) - weights;
    compute.memory_limit = std::min(compute.memory_limit, limit - others);
    if (compute.memory_limit <= weights)
      return Status(StatusCode::kOutOfMemory,
                    format("the trainer takes {} bytes of a device, memory_limit is {}: nothing is left",
                           others + weights, limit))
          .with_number("needed_bytes", others + weights)
          .with_number("limit_bytes", limit);
  }
  return compute;
}

Result<ComputeSettings> TrainedWeights::compute_settings(int64_t memory_limit) const {
  const ProgramRunner& runner = trainer_->runner();
  return compute_beside_trainer(trainer_->settings(), runner.record(), runner.prepared()->executable->program(), memory_limit);
}

Result<std::unique_ptr<ProgramRunner>> TrainedWeights::load(CompiledProgram compiled,
                                                            SessionOptions options) const {
  const std::shared_ptr<const void> owner = trainer_;
  TSR_ASSIGN_OR_RETURN(options.weights, lend_weights(trainer_->runner().session(), compiled.program, owner));
  TSR_ASSIGN_OR_RETURN(auto prepared, prepare(runtime(), devices(), std::move(compiled)));
  return ProgramRunner::create_on(std::move(prepared), std::move(options));
}

Result<WeightLock::Reading> TrainedWeights::read(const ProgramRunner& runner, int64_t known) const {
  WeightLock::Reading reading(trainer_->weight_lock());
  TSR_RETURN_IF_ERROR(trainer_->check_values().with_context("the trainer whose weights are read"));
  if (reading.version() == known) return reading;
  const LoadedProgram& program = *runner.prepared();
  if (!are_in_place(trainer_->runner().session(), program.executable->program(), *runner.weights()))
    return Status(kValuesLost,
                  "a parameter that does not train was written, and is not where it was: make this object "
                  "again for the trainer");
  return reading;
}

}  // namespace tessera
