// Replay: a simulated run of one entry of a Program on all ranks at once. Streams run in order,
// instructions wait as their dependencies say, a collective begins when all its members have
// arrived, a send when its receive has. The result is the time of each instruction, the same in
// whatever order ranks are visited; or, in a deadlock, the ranks that wait for each other.
//
// A send occupies its stream until the message is taken, so bytes that it reads are not overwritten before.
// That is the one wait outside program order: ranks may each delay a receive for a send that the other has to
// take. `verify` replays every entry with everything except sends and receives on one stream, which waits for
// more than any other assignment of streams.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "graph/analysis/dependencies.h"
#include "graph/base/result.h"
#include "graph/program.h"

namespace tessera {

struct ReplayedInterval {
  int64_t begin_ns = -1, end_ns = -1;
};

struct Replay {
  std::vector<std::vector<ReplayedInterval>> ranks;  // [rank][instruction]
  int64_t end_ns = 0;
};

// Nanoseconds of one instruction once it has begun. A collective takes the longest of its members' times, a
// message the sender's.
using ReplayDuration = std::function<int64_t(int32_t rank, int32_t instruction)>;

// `ranks` [rank]: dependencies of entry `entry` in each rank's program. `issued`: by
// rank and instruction, the nanosecond at which its host issues it; empty: all at
// once. kCorrupt for messages and collectives that do not match and for deadlocks.
Result<Replay> replay(const Program& program, size_t entry, std::span<const Dependencies> ranks,
                      const ReplayDuration& duration, std::span<const std::vector<int64_t>> issued = {});

}  // namespace tessera
