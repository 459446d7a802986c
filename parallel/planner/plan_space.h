// PlanSpace: the strategies available to make_plan, as a tree. Roots may be fastest
// if memory suffices; other nodes save memory by more work (smaller micro-batches,
// recomputation, chunks, offload), so no descendant is faster than its node.
#pragma once

#include <cstdint>
#include <vector>

#include "graph/graph.h"
#include "parallel/strategy/strategy.h"

namespace tessera {

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

// With pins: the options left open (dp, tp, sp, zero), on all devices. Without:
// every factorisation of all devices, and of fewer, into pipeline, context, experts,
// tensor forms and data; sp, zero, kept gathers, schedules. Simplest first.
std::vector<StrategySpec> plan_roots(const SpaceOfGraph& space, const StrategyPins& pins, bool has_words,
                                     int32_t devices);

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

}  // namespace tessera
