// PlanSpace: the strategies that make_plan may choose from, as a tree. Its roots are what may be fastest
// where memory is no concern; its other nodes save memory at the price of more work (smaller micro-batches,
// recomputation, chunks, offload), so that nothing below a node is faster than it.
#pragma once

#include <cstdint>
#include <vector>

#include "graph/graph.h"
#include "parallel/strategy/strategy.h"

namespace tessera {

// What of a graph decides which strategies are worth a look.
struct SpaceOfGraph {
  bool trains = false;
  bool may_cut = false;  // its batch into micro-batches (parallel/sharding/batch_cut.h); it trains
  int64_t batch = 1;
  int64_t tokens = 0;   // of a sequence; 0: the graph has none
  int64_t experts = 0;  // of one layer; 0: none
  int64_t blocks = 0;   // that a pipeline may be cut between; 0: not told by scope, anywhere
  Tier away = Tier::kHost;  // where to leave a device for (parallel/pricing/host_tier.h)
};
SpaceOfGraph space_of(const Graph& graph, int64_t batch, int64_t tokens, Tier away = Tier::kHost);

// With words: what they leave open of (dp, tp, sp, zero), on all devices. Without: every factorisation of all
// devices, and of fewer, into pipeline, context, experts, tensor forms and data; sp, zero, kept gathers,
// schedules. Simplest first.
std::vector<StrategySpec> plan_roots(const SpaceOfGraph& space, const StrategyPins& pins, bool has_words,
                                     int32_t devices);

// The same, and activations may wait for backward in another tier.
StrategySpec with_moves(StrategySpec spec, Tier away = Tier::kHost);

// How a node came about: options are added in one order, so that no strategy is reached twice.
enum class SavingStep : uint8_t { kNone, kMicroBatch, kRecompute, kChunks, kOffload };
struct SpaceNode {
  StrategySpec spec;
  SavingStep last = SavingStep::kNone;
};

// The nodes below one that does not fit. `has_words`: whoever gives words means what they name; smaller
// micro-batches alone are left open by them.
std::vector<SpaceNode> savings_of(const SpaceNode& node, const SpaceOfGraph& space, const StrategyPins& pins,
                                  bool has_words);

}  // namespace tessera
