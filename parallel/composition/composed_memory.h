// Memory of a pipeline's devices, composed from the profile of a model with few
// blocks: every device carries out its actions in lowering's order, block by block.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "graph/base/result.h"
#include "parallel/composition/step_profile.h"
#include "parallel/pipeline/schedule_cache.h"
#include "parallel/pipeline/pipeline_schedule.h"

namespace tessera {

// StageBlock: one block of a stage: its number in the profile, and its variant (such as recomputed).
struct StageBlock {
  int32_t block = 0, variant = 0;
  bool is_end = false;  // an end of the model, not a block
};

struct ComposedStages {
  PipelineShape shape;  // one device: no pipeline
  // By stage, in order; the first stage begins with the
  // model's first end, the last stage ends with its last.
  std::vector<std::vector<StageBlock>> blocks;
};

// DeviceBytes: memory of one device.
struct DeviceBytes {
  int64_t parameters = 0, state = 0, inputs = 0;  // inputs: with outputs and constants
  int64_t run = 0;                                // peak of the bytes alive inside a run
  int64_t total() const { return parameters + state + inputs + run; }
};

// Micro-batches that fill the pipeline, so that further ones add no memory; at most its own number.
int32_t filling_micro_batches(const PipelineShape& shape);

// The same stages with few micro-batches and the same peak memory.
ComposedStages filling_stages(ComposedStages stages);

// By device. Profiles are of one model and strategy, with different activations saved: with
// the pipeline's number of micro-batches, or 3 of more (strategy_profile.h). Persistent bytes
// are the first profile's. Fails as schedules do. `schedules`: cache shared with other plans.
Result<std::vector<DeviceBytes>> composed_memory(std::span<const StepProfile> variants,
                                                 const ComposedStages& stages,
                                                 ScheduleCache* schedules = nullptr);

// MemoryPoint: the peak moment of a device's action.
struct MemoryPoint {
  PipelineAction action;
  bool updates = false;  // the update, after all actions
  BytesByCause bytes;    // inside a run
};

// By action of one device, for the micro-batches and schedule of `stages`. Profiles have a breakdown.
Result<std::vector<MemoryPoint>> composed_memory_points(std::span<const StepProfile> variants,
                                                        const ComposedStages& stages,
                                                        const PipelineSchedule& schedule, int32_t device);

// Persistent bytes of one device's share on the host and in files, by MemoryCause.
BytesByCause persistent_elsewhere(std::span<const StepProfile> variants, const ComposedStages& stages,
                                  int32_t device);

}  // namespace tessera
