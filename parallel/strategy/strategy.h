// Named strategies: --parallel ("dp=2,tp=2,sp,zero=1") and the plan
// they define. No strategy has its own code: each sets factor
// assignments and stored specs, extended by propagation over the graph.
//
//   dp=N                              data parallel
//   tp=P or tp=1d:P, tp=2d:XxY, tp=2.5d:QxQxD, tp=3d:QxQxQ      tensor parallel; sp: sequence over 1d
//   cp=ring:N, cp=ulysses:N, cp=gather:N     context parallel; ":contiguous" where zig-zag is not wanted
//   ep=N                              experts over N; everything else takes it as data parallel
//   pp=P:gpipe|1f1b|interleaved:V|zb-h1|zb-h2|zb-v              pipeline; pp=P is 1f1b
//   zero=0..3, zero=3:G               state, gradients, parameters spread over the data axes (groups of G)
//   mb=N                              sequences of one micro-batch on one data-parallel rank
//   chunks=G                          gathers move in G slices
//   recompute=none|full|some|auto     some: a set of single activations, the planner's to choose
//   offload=none|auto|params|grads|optimizer|activations[@host|@file], several joined by '+'
//   owt                               large weights are split over dp instead of the batch (one weird trick)
//   keep                              gathers for forward are kept for backward instead of repeated;
//                                     of a parameter, for the whole step
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "graph/base/result.h"
#include "graph/plan.h"

namespace tessera {

enum class TensorForm : uint8_t { k1d, k2d, k25d, k3d };
enum class ContextForm : uint8_t { kNone, kRing, kUlysses, kGather };
enum class RecomputeForm : uint8_t { kNone, kFull, kAuto, kSome };

// OffloadWords: tier of each kind of tensor between uses; kDevice: not offloaded.
struct OffloadWords {
  bool automatic = false;  // the planner decides
  Tier params = Tier::kDevice, grads = Tier::kDevice, optimizer = Tier::kDevice, activations = Tier::kDevice;
  bool any() const { return *this != OffloadWords{}; }
  friend bool operator==(const OffloadWords&, const OffloadWords&) = default;
};

struct StrategySpec {
  int32_t dp = 1;
  int32_t tp = 1;           // devices of the tensor form, its grid's product
  bool sp = false;          // Megatron sequence parallelism over tp
  int32_t zero = 0;         // 0..3 over dp
  int32_t zero_group = 0;   // shards within groups of this size (zero=3:G); 0: all of dp
  int64_t micro_batch = 0;  // sequences per data-parallel rank (mb=); 0: the planner's choice
  TensorForm form = TensorForm::k1d;
  std::array<int32_t, 3> grid = {1, 1, 1};  // x, y, z of 2d (z = 1), 2.5d and 3d
  ContextForm context = ContextForm::kNone;
  int32_t cp = 1;
  bool zigzag = true;  // for causal attention with ring or gather; ":contiguous" turns it off
  int32_t ep = 1;
  int32_t pp = 1;
  ScheduleKind schedule = ScheduleKind::kNone;  // kNone exactly if pp = 1
  int32_t virtual_stages = 1;                   // stages per device (interleaved)
  int32_t chunks = 1;
  RecomputeForm recompute = RecomputeForm::kNone;
  OffloadWords offload;
  bool keep = false;
  bool owt = false;  // docs/guides/add-a-strategy.md traces it through the code

  int32_t data() const { return dp * ep; }  // parts of the batch, except those of a tensor grid
  int32_t devices() const { return dp * tp * cp * ep * pp; }
  friend bool operator==(const StrategySpec&, const StrategySpec&) = default;
};

// StrategyPins: which options are given; the rest is the planner's.
struct StrategyPins {
  StrategySpec spec;
  bool dp = false, tp = false, sp = false, zero = false, micro_batch = false;
  bool cp = false, ep = false, pp = false, chunks = false, recompute = false, offload = false, keep = false,
       owt = false;
};

// Errors name the word found, the nearest known ones and an example.
Result<StrategyPins> parse_parallel(std::string_view text);
std::string to_text(const StrategySpec& spec);  // canonical: "dp=2,tp=2,sp,zero=1"; "single" for one device
std::string tensor_words(const StrategySpec& spec);  // its tp alone: "tp=2d:2x3"

// Fills in a whole Plan (all nodes, stored specs) for a step graph with all symbols bound except "B".
//   global_batch  sequences per step, cut into equal micro_batches (an error if it does not divide)
// Refuses an inadmissible combination (such as more tp parts than heads), naming the nearest admissible one.
Result<Plan> apply_strategy(const Graph& graph, const StrategySpec& spec, int64_t global_batch);

}  // namespace tessera
