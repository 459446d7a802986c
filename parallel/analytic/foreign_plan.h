// ForeignPlan: a training plan as other systems run it, in the words of --parallel plus schedule and
// recomputation, and the features of the software that ran it. Such plans are priced, never lowered.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "graph/base/dtype.h"
#include "graph/base/result.h"
#include "parallel/analytic/transformer.h"
#include "parallel/strategy/strategy.h"

namespace tessera {

enum class Recompute : uint8_t { kNone, kSelective, kFull };  // selective: the attention scores
// Zero-bubble schedules (zb) split the backward pass; zb-v has two chunks a device.
enum class ForeignSchedule : uint8_t { kGpipe, k1F1B, kInterleaved, kZbH1, kZbH2, kZbV };

struct ForeignPlan {
  int32_t dp = 1, tp = 1, pp = 1;
  TensorForm form = TensorForm::k1d;
  std::array<int32_t, 3> grid = {1, 1, 1};  // of the tp devices, for forms beyond 1d
  int32_t cp = 1;                           // parts of every sequence
  ContextForm context = ContextForm::kNone;
  int32_t ep = 1;  // parts of the experts; a part of the batch each for everything else
  ForeignSchedule schedule = ForeignSchedule::k1F1B;
  int32_t virtual_stages = 1;  // chunks of one device (interleaved)
  int64_t micro_batch = 1;     // sequences per data-parallel rank
  Recompute recompute = Recompute::kNone;
  int32_t zero = 0;  // 0..3 over dp, ep and cp
  // Operators sharded one by one: in every stage so many blocks' attention and feed-forward weights are
  // spread as zero=3 spreads all.
  int32_t sharded_attention = 0, sharded_mlp = 0;
  int32_t chunks = 1;  // what is gathered for use comes in so many slices
  // Quarters that wait on the host: optimizer state, weights of blocks, activations of blocks.
  int32_t offload_optimizer = 0, offload_params = 0, offload_activations = 0;

  // Features of the software.
  bool fused_attention = true;     // scores stay on chip
  bool sequence_parallel = false;  // over tp
  bool dp_overlap = true;          // gradients are reduced beside the last backward pass
  bool scatter_sends = false;      // each tp rank sends its part between stages, gathered there
  bool one_ring = false;           // gradients go round one ring, whatever network cards a node has
  bool skewed_ranks = false;       // collectives within a pass take three times as long, for late ranks
  DType compute_dtype = DType::kBF16;
  bool fp8_linears = false;  // linear layers of blocks multiply numbers of 8 bits; all else is compute_dtype
  DType grad_dtype = DType::kF32;
  // By schedule: what its passes hold, in times of what kept_bytes says (capi/engine/composed_estimate.h).
  std::array<double, 6> held = {1, 1, 1, 1, 1, 1};
  int64_t lora = 0;  // > 0: the model is frozen but for adapters of this rank beside every product of a block

  int32_t devices() const { return dp * tp * pp * cp * ep; }
  int32_t data() const { return dp * ep; }           // parts of the batch
  int32_t replicas() const { return dp * ep * cp; }  // holders of a parameter that is no expert's
  // Whether every tensor-parallel rank has its own part of what lies between products.
  bool splits_activations() const { return sequence_parallel || form != TensorForm::k1d; }
  int32_t weight_parts() const { return form == TensorForm::k25d ? tp / grid[2] : tp; }
  bool splits_backward() const { return schedule >= ForeignSchedule::kZbH1; }
  double held_share() const { return held[static_cast<size_t>(schedule)]; }
};

// parallel "tp=8,dp=32,pp=2:1f1b,mb=4,recompute=full,zero=1" (pp=P:interleaved:V for V chunks a device;
// tp=2d:XxY, 2.5d:QxQxD, 3d:LxLxL; pp=P:zb-h1, zb-h2, zb-v; cp=ring:N, ulysses:N, gather:N; ep=N;
// shard=attention:N+mlp:N; chunks=G; offload=optimizer:1/2@host+params+activations:1/4); features
// "attention=unfused|fused, sp=on|off, dp_overlap=on|off, scatter_sends=on|off, one_ring=on|off,
// skewed_ranks=on|off, dtype=f16|bf16|f32|fp8, grad_dtype=f32|f16|bf16, trainable=all|lora:RANK". dtype=fp8
// is bf16 with fp8_linears. What is not said keeps the defaults above.
Result<ForeignPlan> parse_foreign_plan(std::string_view parallel, std::string_view features);

// Virtual stage -> device of the pipeline.
int32_t device_of(const ForeignPlan& plan, int32_t stage);
// Whether a device of the pipeline has the head.
bool holds_head(const ForeignPlan& plan, int32_t device);

// In the words of --parallel: "tp=8,dp=16,pp=8:1f1b,mb=1,zero=1,recompute=full".
std::string to_text(const ForeignPlan& plan);

// Whether the words are only such as a foreign plan has (pp with a schedule, recompute), so that pricing is
// meant.
Status check_foreign_plan(const ForeignPlan& plan, const TransformerShape& model, int64_t global_batch,
                          int32_t devices);

}  // namespace tessera
