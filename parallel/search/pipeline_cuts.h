// Where to cut a chain of equal blocks into pipeline stages, each with one block or more. Exact.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "graph/base/result.h"

namespace tessera {

// What a stage adds to the time of a step: once, and as its pace when it is the slowest. With m micro-batches
// of t seconds through the stage: {t, (m - 1) * t}.
struct StagePrice {
  double once_s = 0;
  double pace_s = 0;
};

struct PipelineCuts {
  std::vector<int64_t> first;  // first block of each stage, ascending; stage 0 begins at 0
  double once_s = 0, pace_s = 0;
  double time_s = 0;   // sum of once_s plus the largest pace_s: what is minimised
  int64_t solved = 0;  // dynamic programs that it took
};

// Price of a stage with so many blocks; infinite where they do not fit its memory.
using EqualStageCost = std::function<StagePrice(int32_t stage, int64_t blocks)>;

// For stages that take no less with more blocks: few prices are asked for, and the time hardly grows with
// depth. kOutOfMemory when no cut fits. `floor`: no step with so many blocks in the stage takes less; infinite where they do not fit;
// never less for more blocks. Cuts of `most_s` or more are not looked for: with no others `first` is empty
// and `time_s` is `most_s`. A cut with a stage whose floor is above what some cut takes never counts.
// `as_before`, where given: whether a stage's prices and floors are those of the stage before it.
using StageFloor = std::function<double(int32_t stage, int64_t blocks)>;
Result<PipelineCuts> cut_growing_blocks(int64_t blocks, int32_t stages, const EqualStageCost& cost,
                                        const StageFloor& floor, double most_s,
                                        const std::function<bool(int32_t stage)>& as_before = {});

// The same where only the slowest stage's pace counts: `pace` is all that a stage costs. Stages have `least`
// blocks or more.
Result<PipelineCuts> cut_to_least_pace(int64_t blocks, int32_t stages, int64_t least, const StageFloor& pace,
                                       double most_s,
                                       const std::function<bool(int32_t stage)>& as_before = {});

}  // namespace tessera
