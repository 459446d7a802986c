// Pipeline schedules: the ordered actions of each device. Pure
// functions of a shape, independent of graphs and programs. Lowering
// orders its tasks by them; the replay (pipeline_replay.h) times them.
//
//   gpipe        all forwards, then all backwards
//   1f1b         one forward per backward once the pipeline is full
//   interleaved  likewise with v stages per device, stage s on device s mod p, for any number of micro-batches
//   zb-h1, h2    backward split into input and weight gradients; weight gradients fill the bubbles
//                (Qi et al., "Zero Bubble Pipeline Parallelism", 2023)
//   zb-v         two stages a device in a V: device d holds d and 2p-1-d (Qi et al., "Pipeline Parallelism
//                with Controllable Memory", 2024)
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "graph/base/result.h"
#include "graph/plan.h"

namespace tessera {

// Limits of devices, stages per device, and micro-batches per step.
inline constexpr int32_t kMostMicroBatches = 1 << 16;

enum class PipelineWork : uint8_t { kForward, kBackwardInput, kBackwardWeight, kBackward };

// kBackward: both gradients at once, in schedules that do not split backward.
struct PipelineAction {
  PipelineWork work = PipelineWork::kForward;
  int32_t stage = 0;
  int32_t micro_batch = 0;
  friend bool operator==(const PipelineAction&, const PipelineAction&) = default;
};

struct PipelineShape {
  ScheduleKind kind = ScheduleKind::k1F1B;
  int32_t devices = 1;         // p
  int32_t virtual_stages = 1;  // v: stages per device; 2 for zb-v, 1 for all others except interleaved
  int32_t micro_batches = 1;   // m

  int32_t stages() const { return devices * virtual_stages; }
  int32_t device_of(int32_t stage) const;
  int32_t chunk_of(int32_t stage) const {
    return stage / devices;
  }  // index among its device's stages, early first
  bool splits_backward() const { return kind >= ScheduleKind::kZbH1; }
};

// PipelineCosts: time of one micro-batch in a stage, in
// any unit, equal for all stages. `comm`: between devices.
struct PipelineCosts {
  double forward = 1, backward_input = 1, backward_weight = 1;
  double comm = 0;
};

struct PipelineSchedule {
  PipelineShape shape;
  std::vector<std::vector<PipelineAction>> devices;
};

// Bound on a device's memory: pairs of stage and micro-batch whose
// forward is done and whose backward (weight gradients included) is not.
int32_t live_bound(const PipelineShape& shape, int32_t device);

// Makes the schedule; zero-bubble schedules are the best of a fixed
// list of heuristics for equal passes. Deterministic. Fails for invalid
// shapes (zb-v with other than 2 stages per device, no micro-batches).
Result<PipelineSchedule> make_pipeline_schedule(const PipelineShape& shape);

std::string to_text(
    const PipelineAction& action);  // "F3.0": stage 3, micro-batch 0; B input, W weight, D both
std::string to_text(const PipelineSchedule& schedule);  // one line per device

}  // namespace tessera
