// Simulator: the predicted run of a lowered program: instructions at their prices, with the
// executor's streams and waits. Deterministic, in whole nanoseconds; also available as a trace.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "graph/analysis/replay.h"
#include "graph/cluster.h"
#include "graph/program.h"
#include "graph/trace.h"

namespace tessera {

struct Simulation {
  size_t entry = 0;                        // index of the entry in every rank's program
  std::vector<Dependencies> dependencies;  // by rank
  Replay run;
  double seconds() const { return static_cast<double>(run.end_ns) * 1e-9; }
};

struct SimulatorOptions {
  std::optional<StreamOptions> streams;  // nullopt: usual_streams
  // Assumes this many computing ranks throughout; 0: the actual number at
  // each moment, if devices share cores (parallel/pricing/shared_replay.h).
  int32_t busy_ranks = 0;
};

Result<Simulation> simulate(const Program& program, std::string_view entry, const Cluster& cluster,
                            const SimulatorOptions& options = {});

// Ordered by rank, stream, time.
std::vector<TraceEvent> trace_of(const Program& program, const Simulation& simulation);

}  // namespace tessera
