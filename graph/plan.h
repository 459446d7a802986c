// Plan: decisions only. Small, printable, editable by hand and diffable; `lower` turns it into a Program.
//
// The graph it speaks of is the whole step (forward, backward, update nodes) and is named by fingerprint.
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

// Compute sharding of one node.
struct NodePlan {
  int32_t stage = 0;
  std::vector<std::pair<char, std::vector<AxisId>>> factor_axes;  // factors not listed are unsharded; sorted by name
  // Axes along which a sum-partial passes through: the inputs of rule.linear[carry_set] are taken as partial over
  // them, the outputs are partial over them.
  std::vector<AxisId> carried;
  int32_t carry_set = -1;
  int32_t chunks = 1;  // g: the moving operand arrives in g slices
  // Units beyond the rule's own: shards of the factor are whole multiples (query heads in whole KV groups, a merged
  // head dim in whole heads). Factors not listed have the rule's unit; sorted by name.
  std::vector<std::pair<char, int64_t>> factor_units;
  friend bool operator==(const NodePlan&, const NodePlan&) = default;
};

// Where a tensor lives between runs or between uses. For a gradient: the spec in which micro-batches accumulate
// (may be partial). For a parameter: stored spec; kernels gather it on use when they want it wider.
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

struct Stage {
  DeviceMesh mesh;
  friend bool operator==(const Stage&, const Stage&) = default;
};

// Stored in plan files: append, never renumber.
enum class ScheduleKind : uint8_t { kNone = 0, kGpipe = 1, k1F1B = 2, kInterleaved = 3, kZeroBubble = 4 };

struct PlanEstimate {
  double step_time_s = 0;
  double compute_s = 0, communication_s = 0;
  std::vector<int64_t> arena_bytes;  // per device, device tier; equal to the Program's
  double gap = -1;                   // (this - lower bound) / this; -1 when no bound was computed
  friend bool operator==(const PlanEstimate&, const PlanEstimate&) = default;
};

struct Plan {
  uint64_t graph_fingerprint = 0;
  std::string strategy;  // in the words of --parallel: "dp=2,tp=2,zero=1"; for people
  std::vector<Stage> stages;
  std::vector<NodePlan> nodes;        // by NodeId
  std::vector<StoredTensor> stored;   // parameters, gradients, state, inputs; sorted by tensor id
  std::vector<TensorId> recompute;    // activations computed again for backward instead of kept; sorted
  ScheduleKind schedule = ScheduleKind::kNone;
  int64_t global_batch = 0;           // sequences in one step (value of symbol B over all ranks and micro-batches)
  int32_t micro_batches = 1;          // m; B of one micro-batch over all data-parallel ranks = global_batch / m
  std::vector<std::pair<std::string, int64_t>> symbols;  // the other symbols ("T") as bound
  PlanEstimate estimate;

  const StoredTensor* find_stored(TensorId tensor) const;
};

// Text form, exact both ways; nodes and tensors appear by name beside their ids (graph/plan_text.cc).
std::string print(const Plan& plan, const Graph& graph);
Result<Plan> parse_plan(std::string_view text, const Graph& graph);

}  // namespace tessera
