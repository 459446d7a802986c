// One pipeline stage from its blocks: passes of a micro-batch, parameters, bytes.
#pragma once

#include <cstdint>

#include "parallel/analytic/block_time.h"
#include "parallel/analytic/step_time.h"

namespace tessera {

struct StagePasses {
  double forward_s = 0, backward_s = 0;  // with sends; backward with recomputation
  double recompute_s = 0;                // of which: kernels computed again
  double collective_s = 0;               // of both: collectives and sends
  double send_s = 0;                     // of which: sends
  double weight_s = 0;                   // of backward: gradients of weights
  double offload_s = 0;                  // of both: waiting for the host's memory
};

// Micro-batches (of one chunk each, interleaved) whose activations stage `stage` holds at once.
int64_t in_flight(const ForeignPlan& plan, int32_t stage, int64_t micro_batches);

// What one device of a stage holds, by what it is for; total() is all of it.
struct StageMemory {
  int64_t parameters = 0, gradients = 0, optimizer = 0;
  int64_t activations = 0;  // kept for backward, of all micro-batches in flight
  int64_t logits = 0;       // of one micro-batch, with what the loss keeps beside them
  int64_t transient = 0;    // one block while it is computed (again) and its gradients are
  int64_t gathered = 0;     // weights gathered or fetched for use
  int64_t reserved = 0;     // contexts, communicators, workspaces
  int64_t host = 0;         // on the host, so in no total
  int64_t total() const {
    return parameters + gradients + optimizer + activations + logits + transient + gathered + reserved;
  }
};

class StageTimes {
 public:
  StageTimes(const TransformerShape& model, const ForeignPlan& plan, const Cluster& cluster);
  // Of a plan that splits a micro-batch and a block alike: with the same tp, cp and ep, micro-batch and
  // features. How it is replicated, staged and scheduled and what it saves of memory may differ.
  StageTimes(const StageTimes& alike, const ForeignPlan& plan);

  StagePasses of(const StageBlocks& blocks, bool first, bool last) const;
  double transfer_s() const { return transfer_s_; }  // from one stage to the next
  // On one tensor- and expert-parallel rank.
  double parameters(int64_t blocks, bool first, bool last) const;
  StageParameters counts(int64_t blocks, bool first, bool last) const;

  // Bytes of one device. Activations that one micro-batch keeps in one block; and what the ends of the model
  // hold for one micro-batch.
  int64_t activation_bytes(Recompute recompute) const {
    return static_cast<int64_t>(plan_.held_share() *
                                static_cast<double>(kept_[static_cast<size_t>(recompute)]));
  }
  int64_t end_activation_bytes(bool first, bool last) const;
  int64_t offloaded_bytes(int32_t quarters) const;  // of what one micro-batch keeps in one block
  // All that a stage's device holds, while the activations of `flights` micro-batches (of one of its `chunks`
  // each) do. What contexts and communicators hold is in it, too.
  int64_t memory_bytes(const StageBlocks& stage, bool first, bool last, int64_t flights,
                       int64_t chunks = 1) const {
    return memory(stage, first, last, flights, chunks).total();
  }
  StageMemory memory(const StageBlocks& stage, bool first, bool last, int64_t flights,
                     int64_t chunks = 1) const;

 private:
  void price_transfer();
  double largest_sharded() const;  // parameters of the largest operator that is sharded by itself
  double fetched_bytes() const;    // of one block's weights, from the host, for one pass
  int64_t kept_bytes(Recompute recompute) const;

  const TransformerShape& model_;
  const ForeignPlan& plan_;
  const Cluster& cluster_;
  const DeviceKind& kind_;
  BlockTime block_, selective_, full_, embedding_, head_;
  double transfer_s_ = 0;
  // Asked for at every count of blocks; what a plan saves of memory changes none of them.
  int64_t kept_[3] = {};
  double block_parameters_ = 0, expert_parameters_ = 0, mlp_parameters_ = 0;
  BlockTime scales_;  // of a block's linear layers in 8 bits, which depend on how often the model is there
};

}  // namespace tessera
