// Plans in which every member differs from its default: of the first format, the second, and the present one.
#pragma once

#include "graph/plan.h"

namespace tessera::testing {

inline Plan sample_plan() {
  Plan plan;
  plan.graph_fingerprint = 0xfedcba9876543210;
  plan.strategy = "dp=2,tp=3,pp=2:1f1b";
  plan.stages = {{DeviceMesh{{{"dp", 2}, {"tp", 3}}, {0, 1, 2, 3, 4, 5}}}, {DeviceMesh{{{"dp", 2}}, {6, 7}}}};
  plan.nodes.resize(3);
  plan.nodes[1].factor_axes = {{'m', {0}}, {'n', {1, 0}}};
  plan.nodes[1].carried = {0};
  plan.nodes[1].carry_set = 1;
  plan.nodes[1].chunks = 4;
  plan.nodes[1].factor_units = {{'n', 64}};
  plan.nodes[2].stage = 1;
  plan.nodes[2].factor_axes = {{'b', {0}}};
  Placement owner;
  owner.stored.dims = {{{0, 1}, 16}, {}};
  owner.tier = Tier::kHost;
  Placement mirror;
  mirror.mesh = 1;
  mirror.stored.dims = {{}, {{}, 1}};
  mirror.stored.partial = {0};
  mirror.stored.reduce = ReduceKind::kMax;
  plan.stored = {{TensorId{2}, {owner, mirror}}, {TensorId{5}, {}}};
  plan.recompute = {TensorId{7}, TensorId{9}};
  plan.schedule = ScheduleKind::k1F1B;
  plan.global_batch = 96;
  plan.micro_batches = 8;
  plan.symbols = {{"T", 128}, {"S", 1}};
  plan.estimate = {0.123456789012345, 0.1, 0.02, {int64_t{1} << 40, 12345}, 0.037, 0x1db0053241f7380f};
  return plan;
}

inline Plan larger_sample_plan() {
  Plan plan = sample_plan();
  plan.nodes[1].chunk_factor = 'k';
  plan.nodes[2].chunk_factor = 's';
  plan.nodes[2].chunk_order = ChunkOrder::kRotating;
  plan.nodes[0].tier = Tier::kHost;
  plan.keep_gathered = {TensorId{2}, TensorId{5}};
  plan.offload = {{TensorId{7}, Tier::kFile}, {TensorId{8}, Tier::kHost}};
  plan.zigzag = {0};
  plan.prefetch = 3;
  plan.schedule = ScheduleKind::kZbV;
  return plan;
}

inline Plan owner_sample_plan() {
  Plan plan = larger_sample_plan();
  plan.nodes[1].factor_firsts = {{'m', 1}};
  plan.stored[0].placements[0].stored.dims[0].first = 5;
  return plan;
}

}  // namespace tessera::testing
