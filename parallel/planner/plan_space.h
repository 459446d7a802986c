// Plan spaces: the strategies that each search looks at. One table has the limits of every use (plan_space.cc); pins narrow
// them further.
//
// The space of lowered plans is a tree. Roots may be fastest if memory suffices; other nodes save memory by more work
// (smaller micro-batches, recomputation, chunks, offload), so no descendant is faster than its node. Composed plans
// that split a micro-batch equally form a group, whose blocks are profiled once to bound all of them.
#pragma once

#include <cstdint>
#include <vector>

#include "graph/base/result.h"
#include "graph/graph.h"
#include "parallel/strategy/strategy.h"

namespace tessera {

struct PlanOptions;

// SpaceOfGraph: properties of a graph that determine the space.
struct SpaceOfGraph {
  bool trains = false;
  bool may_cut = false;  // into micro-batches (parallel/sharding/batch_cut.h); it trains
  int64_t batch = 1;
  int64_t tokens = 0;   // per sequence; 0: none
  int64_t experts = 0;  // per layer; 0: none
  int64_t blocks = 0;   // that a pipeline may be cut between; 0: anywhere, without scopes
  Tier away = Tier::kHost;  // offload destination (parallel/pricing/host_tier.h)
};
SpaceOfGraph space_of(const Graph& graph, int64_t batch, int64_t tokens, Tier away = Tier::kHost);

// --- lowered plans ---

// With pins: the options left open (dp, tp, sp, zero), on all devices. Without:
// every factorisation of all devices, and of fewer, into pipeline, context, experts,
// tensor forms and data; sp, zero, kept gathers, schedules. Simplest first.
std::vector<StrategySpec> plan_roots(const SpaceOfGraph& space, const StrategyPins& pins, bool has_words,
                                     int32_t devices);

// SearchRoots: the strategies that a search starts from, by the pins and the plan in its options.
struct SearchRoots {
  StrategyPins pins;
  bool has_words = false;  // pins were given
  std::vector<StrategySpec> specs;

  // Whether nothing beyond the pins is chosen; without pins, anything.
  bool is_as_worded(const StrategySpec& spec) const;
};

// At least one. kInvalidArgument without devices, or
// if no strategy with these pins uses all of them.
Result<SearchRoots> search_roots(const SpaceOfGraph& space, const PlanOptions& options, int32_t devices);

// The spec with activations allowed to wait in another tier.
StrategySpec with_moves(StrategySpec spec, Tier away = Tier::kHost);

// SavingStep: the last option added to a node; options are added in one order, so that no strategy is reached twice.
enum class SavingStep : uint8_t { kNone, kMicroBatch, kRecompute, kChunks, kOffload };
struct SpaceNode {
  StrategySpec spec;
  SavingStep last = SavingStep::kNone;
};

// The children of a node that does not fit. `has_words`:
// pinned strategies leave only smaller micro-batches open.
std::vector<SpaceNode> savings_of(const SpaceNode& node, const SpaceOfGraph& space, const StrategyPins& pins,
                                  bool has_words);

// --- composed plans ---

// PlanGroup: the split of a micro-batch: tensor form, context, experts, size; one replica, one stage.
struct PlanGroup {
  StrategySpec spec;
  int32_t parent = -1;   // with the same sequences in fewer parts, which takes no more device time; -1: none
  int32_t smaller = -1;  // with a smaller micro-batch, which needs less memory; -1: none
};

class ComposedSpace {
 public:
  // `graph`: of the whole model. Unpinned options are free, except owt, keep, chunks and offload, which stay unset.
  ComposedSpace(const SpaceOfGraph& graph, const StrategyPins& pins, int64_t devices)
      : graph_(graph), pins_(pins), devices_(devices) {}

  // Parents and smaller ones precede.
  std::vector<PlanGroup> groups() const;
  // All plans of a group: stages, replicas, ZeRO, schedules; recompute=auto unless pinned.
  std::vector<StrategySpec> plans_of(const StrategySpec& group) const;

 private:
  std::vector<int64_t> micro_batches() const;
  std::vector<StrategySpec> splits() const;

  const SpaceOfGraph& graph_;
  const StrategyPins& pins_;
  const int64_t devices_;
};

}  // namespace tessera
