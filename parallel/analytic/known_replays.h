// Zero-bubble pipelines that were replayed before. Configurations of one mesh differ in what comes after the
// pipeline (ZeRO stage, sharded operators, optimizer state on the host) and ask for the same one again and
// again. Any number of threads may ask; who asks first changes no answer.
#pragma once

#include <map>
#include <mutex>
#include <vector>

#include "parallel/analytic/pipeline_replay.h"

namespace tessera {

class KnownReplays {
 public:
  // As replay_zero_bubble without passes.
  ReplayedPipeline replay(ForeignSchedule schedule, int32_t devices, int64_t micro_batches,
                          std::span<const StageTime> times, double transfer_s, double most_s);

 private:
  struct Known {
    ReplayedPipeline replay;
    double most_s = 0;  // it was replayed up to
    // What any larger limit finds, too. A limit close to the bound may have given up a rule that would have
    // been good enough to try no other.
    bool exact = false;
  };
  std::mutex mutex_;
  std::map<std::vector<double>, Known> known_;
};

}  // namespace tessera
