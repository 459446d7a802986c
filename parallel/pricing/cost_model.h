// Prices of a lowered program's instructions, without overlap
// (parallel/pricing/simulator.h adds it). From the cluster's device profile
// if present; else from the catalog's seconds and the cluster's links.
#pragma once

#include <string_view>
#include <vector>

#include "graph/cluster.h"
#include "graph/program.h"

namespace tessera {

// InstructionPrice: one instruction's time by the number of ranks computing.
// Devices that share cores slow each other; `shared_s` is with every core busy.
struct InstructionPrice {
  double alone_s = 0, shared_s = 0;
  int32_t threads = 1;        // ranks that it occupies: all members of a collective
  bool meets_others = false;  // a collective or message: one price for all participants
  double issue_s = 0;         // host time before it (DeviceKind::issue_s), not included in the others
};

// `rank`: of the program; messages use the link to their peer. Groups that span nodes
// use the network (parallel/pricing/link_time.h), unless a profile has measured them.
InstructionPrice price_of(const RankProgram& program, const Instruction& instruction, const Cluster& cluster,
                          int32_t rank = 0);

// Bytes between a device and its host's memory.
InstructionPrice price_of_move(int64_t bytes, const Cluster& cluster);

// Prices of all instructions of an entry; equal kernels are priced once.
std::vector<InstructionPrice> prices_of(const RankProgram& program, const EntryPoint& entry,
                                        const Cluster& cluster, int32_t rank = 0);

// Seconds while `busy` ranks compute, including this one. Up to the number
// of cores their total speed grows linearly from one's to all's; beyond it
// they share that. A profile's loss for `ranks` is added, also for one
// rank using the whole pool, since the system schedules more threads.
double seconds_at(const InstructionPrice& price, const Cluster& cluster, int32_t busy, int32_t ranks = 1);

// Slowdown factor of ranks that share cores, independent of which
// compute; part of `seconds_at`. 1 without sharing or profile.
double loss_to_others(const Cluster& cluster, int32_t ranks);

// Lower bound of a price's share of machine time: alone, or its
// share of all cores; 0 for joint work. Its sum over all ranks is a
// lower bound on any step, as is the sum of `alone_s` over one rank.
double machine_share_bound(const InstructionPrice& price, const Cluster& cluster);

struct Price {
  double compute_s = 0;  // kernels and copies
  double communication_s = 0;
  int64_t collectives = 0;
  double total_s() const { return compute_s + communication_s; }
};

// One run of an entry on the rank of `program`, with `busy_ranks` computing throughout.
Price price(const RankProgram& program, std::string_view entry, const Cluster& cluster, int32_t busy_ranks);

// One instruction of that rank, from its begin.
double instruction_seconds(const RankProgram& program, const Instruction& instruction, const Cluster& cluster,
                           int32_t busy_ranks);

// One collective on a ring: steps times latency, plus one member's sent bytes over the rate.
double collective_seconds(const CollectiveInst& collective, int32_t members, const Link& link);

}  // namespace tessera
