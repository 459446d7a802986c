// Where to cut a chain of blocks into pipeline stages: minimises the sum of stage times plus (m - 1) times
// the longest, the time of m micro-batches. Exact, for any stage costs.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "graph/base/result.h"

namespace tessera {

struct PipelineCuts {
  std::vector<int64_t> first;  // first block of each stage, ascending; stage 0 begins at 0
  double sum_s = 0, longest_s = 0;
  double time_s = 0;   // sum + (m - 1) * longest
  int64_t solved = 0;  // dynamic programs that it took
};

// Time of one micro-batch, forward and backward, of blocks [begin, end) on stage s; infinite where they do
// not fit its memory. Asked once for each triple; every stage gets at least one block.
using StageCost = std::function<double(int32_t stage, int64_t begin, int64_t end)>;

// kOutOfMemory when no cut fits.
Result<PipelineCuts> cut_pipeline(int64_t blocks, int32_t stages, int64_t micro_batches,
                                  const StageCost& cost);

}  // namespace tessera
