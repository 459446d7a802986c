// PlanBounds: what a strategy takes at least, found without making its plan: the graph's own kernels, priced
// for the batch that a rank gets and cut in as many parts as the strategy cuts them, each in the cheapest
// way.
//
// It rests on one property of prices: of equal parts, larger ones take longer. Built-in rates have a stronger
// one, which makes bounds quick: parts take no less, summed, than the whole. The planner holds every
// simulated step against its bound and scales all bounds down where a price breaks it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "graph/cluster.h"
#include "graph/graph.h"
#include "graph/kernel_catalog.h"
#include "graph/program.h"
#include "parallel/planner/plan_space.h"

namespace tessera {

class PlanBounds {
 public:
  // `graph`: symbols bound but for B. All four must outlive this.
  PlanBounds(const Graph& graph, const SpaceOfGraph& space, const Cluster& cluster,
             const KernelCatalog& catalog);

  // Of one step: the work of one rank in a row, with what is computed again or copied away; and where devices
  // share cores, the work of all of them.
  double seconds(const StrategySpec& spec);
  // Device memory of the fullest rank: parameters and optimizer state.
  int64_t persistent_bytes(const StrategySpec& spec) const;
  // And with them what waits for backward, of as many micro-batches as the schedule sends ahead; sums of
  // gradients over micro-batches.
  int64_t bytes(const StrategySpec& spec);
  // Of any step of the strategy with a set of activations computed again that fits `limit`: at least as much
  // is, the cheapest for its bytes first, as keeping all is above it. Where it says that activations are
  // offloaded, any share of that may leave the device instead. Infinite where none can fit.
  double seconds_within(const StrategySpec& spec, int64_t limit);

 private:
  // Of kernels: in a row with the machine to oneself, and as a share of the whole machine's time.
  struct Work {
    double alone_s = 0, share_s = 0;
  };
  // A forward value that backward reads: one rank's part at least, and what it took to make.
  struct Saved {
    int64_t bytes = 0;
    Work work;
    int32_t block = -1;      // that alone reads it: recompute=full makes it again
    bool may_leave = false;  // offload=activations moves it out
  };
  struct Phases {
    Work passes, update;  // forward and backward; update
    std::vector<Saved> saved;
    int32_t blocks = 0;
  };
  // How a strategy cuts the step.
  struct Cuts {
    int64_t count = 1, batch = 1;  // micro-batches of a rank; sequences of each
    int64_t fullest = 1;           // of the fullest rank, where the batch does not come out even
    double fuller = 0;             // share of the ranks that have so many
    int32_t replicas = 1, spread = 1;
  };
  Cuts cuts_of(const StrategySpec& spec) const;
  const Phases& phases_of(const StrategySpec& spec);  // of the fullest rank
  // Micro-batches that the devices of a pipeline hold of each of their stages at once, at their fullest.
  struct InFlight {
    std::vector<int32_t> held = {1};  // by device
    double inverses = 1;              // their sum
    int32_t most = 1;
  };
  const InFlight& in_flight(const StrategySpec& spec);
  // What one rank's phases compute once more in every micro-batch of a whole pipeline, and copy.
  struct Extra {
    Work again, copies;
  };
  // What has to go for a limit to hold, and between which shares of it leave the device.
  struct Within {
    int64_t limit = 0;
    double leaves_least = 0, leaves_most = 0;
  };
  Extra extra_of(const StrategySpec& spec, const Phases& phases, const std::optional<Within>& within);
  double seconds(const StrategySpec& spec, const std::optional<Within>& within);
  int64_t parameter_bytes(const StrategySpec& spec) const;  // of a rank
  // Narrow copies that wait for backward with every micro-batch.
  int64_t waiting_copies(const StrategySpec& spec) const;
  // What waits for backward when one micro-batch has gone forward, in all stages.
  int64_t saved_activation_bytes(const StrategySpec& spec, const Phases& phases) const;
  // Pipelines are cut between blocks: the least that a block has waiting, of one micro-batch, and keeps
  // between steps.
  struct BlockBytes {
    int64_t waiting = 0, lasting = 0, blocks = 0;
  };
  BlockBytes block_bytes(const StrategySpec& spec, const Phases& phases) const;
  // Of one rank, beside what waits.
  int64_t other_bytes(const StrategySpec& spec) const;
  Work copy_work(int64_t bytes) const;
  void find_blocks();
  void find_saved(const Graph& bound, const std::vector<Work>& works, int32_t inside, Phases& phases) const;
  // `inside`: parts that nodes are cut in beside the batch; `spread`: those of parameters at the update.
  const Phases& work_of(int64_t batch, int32_t inside, int32_t spread);
  Work work_of_part(const KernelDesc& whole, const ShardingRule& rule, int32_t parts) const;
  double reduction_seconds(int32_t members, int32_t parts, bool spread);

  const Graph& graph_;
  const SpaceOfGraph& space_;
  const Cluster& cluster_;
  const KernelCatalog& catalog_;
  std::map<std::vector<int64_t>, Phases> works_;        // by batch, inside, spread
  std::map<std::vector<int32_t>, double> reductions_;   // by members, parts, spread
  std::map<std::vector<int32_t>, InFlight> in_flight_;  // by kind, devices, virtual stages, micro-batches
  // Of every trained parameter: what is reduced, and what is gathered of the new value.
  struct Exchanged {
    int64_t gradient = 0, value = 0;
  };
  std::vector<Exchanged> exchanged_;
  int64_t parameter_bytes_ = 0, state_bytes_ = 0;
  // Of parameters that are spread from zero 1 on, since all but the update reads narrow copies of them; of
  // narrow copies that backward reads.
  int64_t narrowed_bytes_ = 0, copies_bytes_ = 0;
  std::vector<bool> makes_copy_;    // by node: a narrow copy of a parameter, which a step makes once
  std::vector<bool> repeats_copy_;  // and one that may stand for it is made by a node before
  int64_t block_parameter_bytes_ = 0, block_state_bytes_ = 0;  // of the smallest block
};

}  // namespace tessera
