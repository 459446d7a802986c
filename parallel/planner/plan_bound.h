// PlanBounds: lower bounds of a strategy's time and memory without
// making its plan: the graph's own kernels, priced for a rank's
// batch and cut as the strategy cuts them, each in the cheapest way.
//
// It rests on one property of prices: of equal parts, larger ones take longer. Built-in rates have
// a stronger one, which makes bounds fast: the parts' sum is at least the whole. The planner checks
// every simulated step against its bound, and scales all bounds down if a price violates it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "graph/base/result.h"
#include "graph/cluster.h"
#include "graph/graph.h"
#include "graph/kernel_catalog.h"
#include "graph/program.h"
#include "parallel/planner/plan_space.h"

namespace tessera {

class PlanBounds {
 public:
  // `graph`: symbols bound except B. All four must outlive this.
  PlanBounds(const Graph& graph, const SpaceOfGraph& space, const Cluster& cluster,
             const KernelCatalog& catalog);

  // One step: a rank's work in sequence, with recomputation and
  // offload copies; if devices share cores, the work of all.
  double seconds(const StrategySpec& spec);
  // Device bytes of the fullest rank: parameters and optimizer state.
  int64_t persistent_bytes(const StrategySpec& spec) const;
  // Likewise with saved activations of the
  // micro-batches in flight, and sums of gradients.
  int64_t bytes(const StrategySpec& spec);
  // Any step with a recompute set that fits `limit`: at least the excess is
  // recomputed, the cheapest per byte first. With offloaded activations,
  // any share of them may leave instead. Infinite if none can fit.
  double seconds_within(const StrategySpec& spec, int64_t limit);
  // Likewise of a strategy without recomputation, with or without offloaded activations; infinite for others.
  double seconds_with_set(const StrategySpec& spec, int64_t limit);
  // Extra time, at least and likely, for a strategy of these
  // bytes to fit by recomputation; infinite if no set suffices.
  std::pair<double, double> extra_seconds_with_set(const StrategySpec& spec, int64_t bytes, int64_t limit);
  // Device bytes of the fullest rank while one of its kernels runs, in addition to persistent ones: operands and results.
  // Independent of the plan and of all memory savings, except single pins (PlanPins).
  int64_t working_bytes(const StrategySpec& spec);
  // The part, without a pipeline, that the step is fed.
  int64_t input_bytes(const StrategySpec& spec);

 private:
  // Work: kernels alone on the machine, and their share of the whole machine's time.
  struct Work {
    double alone_s = 0, share_s = 0;
  };
  // Saved: a forward value that backward reads: one rank's smallest part, and the time to make it.
  struct Saved {
    int64_t bytes = 0;
    Work work;
    int32_t block = -1;      // its only reader: recompute=full makes it again
    bool may_leave = false;  // offload=activations may move it
  };
  struct Phases {
    Work passes, update;  // passes: forward and backward
    std::vector<Saved> saved;
    int32_t blocks = 0;
  };
  // Cuts: the split of a step by a strategy.
  struct Cuts {
    int64_t count = 1, batch = 1;  // micro-batches per rank; sequences of each
    int64_t fullest = 1;           // of the fullest rank, if the batch is uneven
    double fuller = 0;             // share of ranks with that many
    int32_t replicas = 1, spread = 1;
  };
  Cuts cuts_of(const StrategySpec& spec) const;
  const Phases& phases_of(const StrategySpec& spec);  // of the fullest rank
  // InFlight: micro-batches held at once per stage, at the peak of each device.
  struct InFlight {
    std::vector<int32_t> held = {1};  // by device
    double inverses = 1;              // sum of their inverses
    int32_t most = 1;
  };
  const InFlight& in_flight(const StrategySpec& spec);
  // Extra: repeated computation and copies of one rank per micro-batch of the whole pipeline.
  struct Extra {
    Work again, copies;
  };
  // Within: the bytes to free for a limit, and the range of the offloaded share.
  struct Within {
    int64_t limit = 0;
    double leaves_least = 0, leaves_most = 0;
  };
  Extra extra_of(const StrategySpec& spec, const Phases& phases, const std::optional<Within>& within);
  double seconds(const StrategySpec& spec, const std::optional<Within>& within);
  int64_t parameter_bytes(const StrategySpec& spec) const;  // per rank
  // Narrow copies kept for backward with every micro-batch.
  int64_t waiting_copies(const StrategySpec& spec) const;
  // Saved activations of one micro-batch after forward, over all stages.
  int64_t saved_activation_bytes(const StrategySpec& spec, const Phases& phases) const;
  // BlockBytes: pipelines are cut between blocks: the smallest
  // block's saved bytes of one micro-batch, and its persistent bytes.
  struct BlockBytes {
    int64_t waiting = 0, lasting = 0, blocks = 0;
  };
  BlockBytes block_bytes(const StrategySpec& spec, const Phases& phases) const;
  // Bytes of one rank other than saved activations.
  int64_t other_bytes(const StrategySpec& spec) const;
  // LargestKernel: maxima over all kernels, unsplit.
  struct LargestKernel {
    int64_t other = 0;    // never sliced
    int64_t product = 0;  // without its weights
    int64_t weighted = 0;
    int64_t inputs = 0;  // of the step, in sequence
  };
  const LargestKernel& largest_kernel(int64_t batch);
  Result<Graph> bind_batch(int64_t batch) const;
  Work copy_work(int64_t bytes) const;
  void find_blocks();
  void find_saved(const Graph& bound, const std::vector<Work>& works, int32_t inside, Phases& phases) const;
  // `inside`: parts of nodes in addition to the batch; `spread`: parts of parameters in the update.
  const Phases& work_of(int64_t batch, int32_t inside, int32_t spread);
  Work work_of_part(const KernelDesc& whole, const ShardingRule& rule, int32_t parts) const;
  double reduction_seconds(int32_t members, int32_t parts, bool spread);

  const Graph& graph_;
  const SpaceOfGraph& space_;
  const Cluster& cluster_;
  const KernelCatalog& catalog_;
  std::map<std::vector<int64_t>, Phases> works_;        // by batch, inside, spread
  std::map<std::vector<int32_t>, double> reductions_;   // by members, parts, spread
  std::map<int64_t, LargestKernel> largest_;            // by sequences of a micro-batch
  std::map<std::vector<int32_t>, InFlight> in_flight_;  // by kind, devices, virtual stages, micro-batches
  // Exchanged: for every trained parameter the reduced bytes, and the gathered bytes of the new value.
  struct Exchanged {
    int64_t gradient = 0, value = 0;
  };
  std::vector<Exchanged> exchanged_;
  int64_t parameter_bytes_ = 0, state_bytes_ = 0;
  // Bytes of parameters that are spread from zero 1 on, since all readers except
  // the update use narrow copies; bytes of narrow copies that backward reads.
  int64_t narrowed_bytes_ = 0, copies_bytes_ = 0;
  std::vector<bool> makes_copy_;    // by node: makes a narrow copy of a parameter, once per step
  std::vector<bool> repeats_copy_;  // by node: an earlier node makes an equivalent copy
  int64_t block_parameter_bytes_ = 0, block_state_bytes_ = 0;  // of the smallest block
};

}  // namespace tessera
