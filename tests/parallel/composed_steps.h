// Models whole and with few blocks, and the stages of a plan as blocks of a profile: what tests of compositions share.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "graph/transform/fewer_blocks.h"
#include "parallel/composition/composed_memory.h"
#include "tests/fake_cluster.h"
#include "tests/ok.h"
#include "tests/parallel/step_graphs.h"

namespace tessera::test {

inline constexpr int64_t kComposedTokens = 256, kComposedBatch = 32;
inline const std::vector<std::pair<std::string, int64_t>> kComposedSymbols = {{"T", kComposedTokens}};

struct Model {
  std::string shorthand;
  DType compute = DType::kF32;
  bool tied = false;
};

struct ComposedSteps {
  Graph whole, few;
  std::vector<int32_t> like;
};

inline ComposedSteps steps_of(const Model& model) {
  constexpr double kClipNorm = 1;
  const Graph forward = ok(forward_graph(model.shorthand, model.tied));
  FewerBlocks few = ok(with_fewer_blocks(forward));
  return {ok(training_step_of(forward, kClipNorm, model.compute)),
          ok(training_step_of(std::move(few.graph), kClipNorm, model.compute)), std::move(few.like)};
}

// The blocks of the plan's stages, as blocks of the profile.
inline ComposedStages stages_of(const Graph& whole, const Plan& plan, const std::vector<int32_t>& like,
                                const StrategySpec& spec) {
  const BlockMap map = find_blocks(whole);
  REQUIRE(map.blocks == static_cast<int32_t>(like.size()));
  const int32_t after = *std::ranges::max_element(like) + 2;
  ComposedStages stages;
  stages.shape = {spec.schedule, spec.pp, spec.virtual_stages, plan.micro_batches};
  stages.blocks.resize(static_cast<size_t>(stages.shape.stages()));
  std::vector<int32_t> stage(static_cast<size_t>(map.after()) + 1, 0);
  for (size_t n = 0; n < whole.nodes().size(); ++n)
    if (whole.nodes()[n].phase == Phase::kForward)
      stage[static_cast<size_t>(map.of_node[n])] = plan.nodes[n].stage;
  for (int32_t b = 0; b <= map.after(); ++b) {
    const int32_t number = b == 0 ? 0 : b == map.after() ? after : like[static_cast<size_t>(b) - 1] + 1;
    stages.blocks[static_cast<size_t>(stage[static_cast<size_t>(b)])].push_back(
        {.block = number, .variant = 0, .is_end = b == 0 || b == map.after()});
  }
  return stages;
}

inline Cluster devices_of(size_t count) {
  Cluster cluster = fake_cluster(static_cast<int64_t>(count), {1e10, 1e-6}, 1e12);
  cluster.host_link = {1e10, 1e-6};
  return cluster;
}

}  // namespace tessera::test
