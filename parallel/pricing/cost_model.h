// Price of a lowered program: the instructions as they are, nothing overlapped. (parallel/pricing/simulator.h
// overlaps them.) From the cluster's device profile where it has one; else from the catalog's seconds and the
// cluster's links.
#pragma once

#include <string_view>
#include <vector>

#include "graph/cluster.h"
#include "graph/program.h"

namespace tessera {

// One instruction once it has begun, by how many ranks (devices) compute at that time. Devices that share
// cores lose speed as more of them compute; `shared_s` is with one at work on every core.
struct InstructionPrice {
  double alone_s = 0, shared_s = 0;
  int32_t threads = 1;        // ranks that it keeps at work: all members of a collective
  bool meets_others = false;  // a collective or message: one price for all who take part
  double issue_s = 0;         // of the host, before it (DeviceKind::issue_s); no part of the others
};

// `rank`: of the program; its messages go by the link between it and their peer. Groups that span nodes go by
// the network (parallel/pricing/link_time.h), unless a profile has measured them.
InstructionPrice price_of(const RankProgram& program, const Instruction& instruction, const Cluster& cluster,
                          int32_t rank = 0);

// Of bytes on their way from a device to its host's memory, or back.
InstructionPrice price_of_move(int64_t bytes, const Cluster& cluster);

// Every instruction of an entry; equal kernels are looked up once.
std::vector<InstructionPrice> prices_of(const RankProgram& program, const EntryPoint& entry,
                                        const Cluster& cluster, int32_t rank = 0);

// Seconds while `busy` ranks compute, this one's among them. Up to the number of cores their joint speed goes
// from that of one to that of all in equal steps; beyond it they share that.
// Where a profile says what `ranks` lose to each other, that comes on top, also while one alone computes with
// all of the pool: the system has more threads to place.
double seconds_at(const InstructionPrice& price, const Cluster& cluster, int32_t busy, int32_t ranks = 1);

// What ranks that share cores lose to each other, in times: part of `seconds_at`, whoever is at work. 1 where
// they share nothing, or no profile says.
double loss_to_others(const Cluster& cluster, int32_t ranks);

// Lower bound of the share of the machine's time that a price takes: alone, or its share of all cores; 0 for
// what several ranks do together. The sum over everything that all ranks compute is a lower bound on any step,
// and so is the sum of `alone_s` over one rank.
double machine_share_bound(const InstructionPrice& price, const Cluster& cluster);

struct Price {
  double compute_s = 0;  // kernels and copies
  double communication_s = 0;
  int64_t collectives = 0;
  double total_s() const { return compute_s + communication_s; }
};

// One run of an entry on the rank that `program` is for, `busy_ranks` computing all the time.
Price price(const RankProgram& program, std::string_view entry, const Cluster& cluster, int32_t busy_ranks);

// One instruction of that rank, from when it begins.
double instruction_seconds(const RankProgram& program, const Instruction& instruction, const Cluster& cluster,
                           int32_t busy_ranks);

// One collective on a ring: steps times latency plus bytes sent by one member over the rate.
double collective_seconds(const CollectiveInst& collective, int32_t members, const Link& link);

}  // namespace tessera
