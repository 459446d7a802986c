// Memory of a pipeline's devices, composed of the profile of a model with few blocks: every device carries out its actions in the line that
// lowering emits them in, block by block.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "graph/base/result.h"
#include "parallel/composition/step_profile.h"
#include "parallel/pipeline/schedule_cache.h"
#include "parallel/pipeline/pipeline_schedule.h"

namespace tessera {

// One block of a stage: its number in the profile, and which of the profiles it runs as (recomputed or not, say).
struct StageBlock {
  int32_t block = 0, variant = 0;
  bool is_end = false;  // of the model, no block of it
};

struct ComposedStages {
  PipelineShape shape;  // of one device: no pipeline
  // By stage, in order, as many as it has; the first stage begins with the model's first end, the last ends
  // with its last.
  std::vector<std::vector<StageBlock>> blocks;
};

// Of one device.
struct DeviceBytes {
  int64_t parameters = 0, state = 0, inputs = 0;  // inputs: and outputs, and constants
  int64_t run = 0;                                // most that is alive at once of what lives inside a run
  int64_t total() const { return parameters + state + inputs + run; }
};

// Micro-batches with which a pipeline is full, and holds no more with any further one; no more than it has.
int32_t filling_micro_batches(const PipelineShape& shape);

// The same stages with few micro-batches, of which devices hold as much at most.
ComposedStages filling_stages(ComposedStages stages);

// By device. Profiles of one model and strategy but for what is kept for backward: of a pipeline where there is
// one, and of as many micro-batches, or of 3 of more (strategy_profile.h). What outlives a run is the first one's. Fails as
// schedules do. `schedules`: known from other plans.
Result<std::vector<DeviceBytes>> composed_memory(std::span<const StepProfile> variants,
                                                 const ComposedStages& stages,
                                                 ScheduleCache* schedules = nullptr);

// MemoryPoint: the fullest moment of a device's action.
struct MemoryPoint {
  PipelineAction action;
  bool updates = false;  // after all actions: the update
  BytesByCause bytes;    // inside a run
};

// By action of one device, of as many micro-batches as `stages` and their schedule say. Profiles have a breakdown.
Result<std::vector<MemoryPoint>> composed_memory_points(std::span<const StepProfile> variants,
                                                        const ComposedStages& stages,
                                                        const PipelineSchedule& schedule, int32_t device);

// Of one device, on the host and in files, by MemoryCause: what outlives a run there.
BytesByCause persistent_elsewhere(std::span<const StepProfile> variants, const ComposedStages& stages,
                                  int32_t device);

}  // namespace tessera
