// Price of a lowered program: the instructions as they are, nothing overlapped. (parallel/simulator.h
// overlaps them.)
#pragma once

#include <string_view>

#include "graph/cluster.h"
#include "graph/program.h"

namespace tessera {

struct Price {
  double compute_s = 0;  // kernels and copies
  double communication_s = 0;
  int64_t collectives = 0;
  double total_s() const { return compute_s + communication_s; }
};

// One run of an entry on the rank that `program` is for. `busy_ranks` run at once: devices that share cores
// take that many times as long for everything they compute.
Price price(const RankProgram& program, std::string_view entry, const Cluster& cluster, int32_t busy_ranks);

// One instruction of that rank, from when it begins.
double instruction_seconds(const RankProgram& program, const Instruction& instruction, const Cluster& cluster,
                           int32_t busy_ranks);

// One collective on a ring: steps times latency plus bytes sent by one member over the rate.
double collective_seconds(const CollectiveInst& collective, int32_t members, const Link& link);

}  // namespace tessera
