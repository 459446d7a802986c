// Plan: decisions only. Small, printable, editable by hand and diffable; `lower` turns it into a Program.
//
// Its graph is the whole step (forward, backward, update nodes), named by fingerprint.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "graph/base/result.h"
#include "graph/cluster.h"
#include "graph/device_mesh.h"
#include "graph/graph.h"
#include "graph/sharding_spec.h"

namespace tessera {

// Stored in plan files: append, never renumber.
enum class ChunkOrder : uint8_t { kBroadcast = 0, kRotating = 1 };

// NodePlan: compute sharding of one node.
struct NodePlan {
  int32_t stage = 0;
  std::vector<std::pair<char, std::vector<AxisId>>> factor_axes;  // factors not listed are unsharded; sorted by name
  // Axes over which partial sums pass unreduced: the inputs of
  // rule.linear[carry_set] are partial over them, and so are the outputs.
  std::vector<AxisId> carried;
  int32_t carry_set = -1;
  // Chunks (panels, operator splitting): the factor is split into `chunks` index ranges. For each range the
  // operands that have the factor are sliced and gathered, the kernel runs on the slice, outputs that have it
  // are concatenated and outputs that lack it are added up (ALGEBRA rule 7). Rotating: as many chunks as
  // ranks on the factor's axis; each rank starts at its own shard and passes the moving operands along a ring
  // (ring attention over kv).
  char chunk_factor = 0;  // 0: not chunked
  int32_t chunks = 1;     // g in ALGEBRA
  ChunkOrder chunk_order = ChunkOrder::kBroadcast;
  Tier tier = Tier::kDevice;  // where the kernel runs: kHost for optimizer steps of offloaded state
  // Units that replace the rule's own: shard extents are multiples of the unit (query heads in whole KV
  // groups, a merged head dim in whole heads). Factors not listed have the rule's unit; sorted by name.
  std::vector<std::pair<char, int64_t>> factor_units;
  // The part with which the larger shards begin (DimSharding::first). Shards of these factors may be empty: a factor of one
  // unit lies whole on one part, its owner. Factors not listed begin at part 0 and have no empty shards; sorted by name.
  std::vector<std::pair<char, int32_t>> factor_firsts;
  friend bool operator==(const NodePlan&, const NodePlan&) = default;
};

// Placement: the location of a tensor between runs or between uses. For a
// gradient: the spec in which micro-batches accumulate (may be partial). For a
// parameter: the stored spec; kernels that need it less sharded gather it on use.
struct Placement {
  int32_t mesh = 0;  // index into Plan::stages
  ShardingSpec stored;
  Tier tier = Tier::kDevice;
  friend bool operator==(const Placement&, const Placement&) = default;
};

struct StoredTensor {
  TensorId tensor = kNoTensor;
  std::vector<Placement> placements;  // several where tied across stages: the first owns, the others mirror
  friend bool operator==(const StoredTensor&, const StoredTensor&) = default;
};

// A stage of the pipeline. Stages may share devices (interleaved and V schedules: stage s and another on the
// same ranks); all meshes have equal axes, and two meshes have equal devices or none in common.
struct Stage {
  DeviceMesh mesh;
  friend bool operator==(const Stage&, const Stage&) = default;
};

// Stored in plan files: append, never renumber.
// kZbH1, kZbH2, kZbV: backward split in input and weight gradients (Qi et al., 2023).
enum class ScheduleKind : uint8_t {
  kNone = 0,
  kGpipe = 1,
  k1F1B = 2,
  kInterleaved = 3,
  kZbH1 = 4,
  kZbH2 = 5,
  kZbV = 6,
};

// OffloadedTensor: an activation that leaves the device after its last forward use and returns before its
// first backward use.
struct OffloadedTensor {
  TensorId tensor = kNoTensor;
  Tier tier = Tier::kHost;
  friend bool operator==(const OffloadedTensor&, const OffloadedTensor&) = default;
};

struct PlanEstimate {
  double step_time_s = 0;
  double compute_s = 0, communication_s = 0;
  std::vector<int64_t> arena_bytes;  // per device, device tier; equal to the Program's
  double gap = -1;                   // 1 - lower bound / step_time_s; -1 when no bound was computed
  uint64_t profile = 0;              // checksum of the prices' device profile; 0: built-in rates
  friend bool operator==(const PlanEstimate&, const PlanEstimate&) = default;
};

struct Plan {
  uint64_t graph_fingerprint = 0;
  std::string strategy;  // in --parallel syntax ("dp=2,tp=2,zero=1"), or a label ("by operation")
  std::vector<Stage> stages;
  std::vector<NodePlan> nodes;        // by NodeId
  std::vector<StoredTensor> stored;   // parameters, gradients, state, inputs; sorted by tensor id
  std::vector<TensorId> recompute;    // activations computed again for backward instead of kept; sorted
  std::vector<TensorId> keep_gathered;  // tensors whose gathered copies stay from forward to backward ("kept" rather
                                        // than "re" in ALGEBRA's volumes); of parameters and their low-precision
                                        // copies, for all micro-batches; sorted
  std::vector<OffloadedTensor> offload;  // saved activations; sorted by tensor
  // Axes over which sequences are in zig-zag order: rank i of N holds pieces i and 2N-1-i of 2N, so that causal
  // attention costs every rank the same. Other dims on these axes (rows of weights, say) keep plain order.
  std::vector<AxisId> zigzag;
  int32_t prefetch = 1;  // gathers and tier copies are issued this many nodes before their reader
  ScheduleKind schedule = ScheduleKind::kNone;
  int64_t global_batch = 0;           // sequences in one step (value of symbol B over all ranks and micro-batches)
  int32_t micro_batches = 1;          // m; B of one micro-batch over all data-parallel ranks = global_batch / m
  std::vector<std::pair<std::string, int64_t>> symbols;  // values of the other symbols, such as "T"
  PlanEstimate estimate;

  const StoredTensor* find_stored(TensorId tensor) const;
};

// Text form that round-trips exactly; nodes and tensors appear by name and id (graph/plan_text.cc).
std::string print(const Plan& plan, const Graph& graph);
Result<Plan> parse_plan(std::string_view text, const Graph& graph);

}  // namespace tessera
