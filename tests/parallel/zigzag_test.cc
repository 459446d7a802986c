// Zig-zag order is the order of sequences. Whatever else lies on the same axis is in order.
#include <doctest/doctest.h>

#include <algorithm>

#include "graph/base/text.h"
#include "parallel/sharding/graph_dims.h"
#include "parallel/sharding/node_sharding.h"
#include "tests/parallel/step_graphs.h"

using namespace tessera;

namespace {

constexpr std::string_view kModel = "llama:L=1,C=32,H=4,KV=2,F=44,V=50,T=24";
constexpr int64_t kBatch = 3, kTokens = 21;

// Two ranges of the sequence in each row; those of the last rank meet.
void check_inputs(const RankProgram& rank, bool last) {
  for (const Binding& input : rank.entries[0].inputs) {
    if (input.global.shape.rank() != 2) continue;
    CAPTURE(input.name);
    CHECK(input.pieces.size() == (last ? 1 : 2 * kBatch));
  }
}

}  // namespace

TEST_CASE("rows that zero spreads over a zig-zag axis are in order, sequences are not") {
  const Graph step = training_step(kModel, true, 1).value();
  for (const std::string_view words : {"cp=ring:2,zero=1", "cp=ring:2,zero=2", "cp=ring:3,zero=3",
                                       "cp=ring:2,zero=3,chunks=2", "cp=ring:2,tp=2,sp,zero=3"}) {
    CAPTURE(words);
    const auto plan = plan_of(step, words, kBatch, kTokens);
    REQUIRE_MESSAGE(plan.ok(), plan.status().to_string());
    REQUIRE(plan->zigzag.size() == 1);
    const auto program = program_of(step, words, kBatch, kTokens);
    REQUIRE_MESSAGE(program.ok(), program.status().to_string());
    int spread = 0;
    for (const RankProgram& rank : program->ranks) {
      if (words.find("sp") == std::string_view::npos) check_inputs(rank, &rank == &program->ranks.back());
      for (const auto* bindings : {&rank.parameters, &rank.states})
        for (const Binding& binding : *bindings) {
          CAPTURE(binding.name);
          REQUIRE(binding.pieces.size() == 1);
          const Box& box = binding.pieces[0].box;
          for (size_t d = 0; d < box.size(); ++d) {
            const int64_t extent = binding.global.shape[static_cast<int>(d)];
            spread += box[d].size() < extent;
            // The first rank's rows are the first rows: rank by rank, without gaps.
            if (&rank == &program->ranks[0]) CHECK(box[d].begin == 0);
          }
        }
    }
    CHECK(spread > 0);
  }
}

TEST_CASE("sequences are found through a whole step; weights and their state have none") {
  const Graph step = training_step(kModel, true, 1).value();
  const std::vector<std::pair<std::string, int64_t>> symbols = {{"B", kBatch}, {"T", kTokens}};
  const Graph bound = step.bind(symbols).value();
  std::vector<ShardingRule> rules;
  for (const Node& node : bound.nodes()) rules.push_back(rule_of(bound, node).value());
  const SequenceDims found = find_sequence_dims(step, bound, rules);
  for (size_t t = 0; t < bound.tensors().size(); ++t) {
    const Tensor& tensor = bound.tensors()[t];
    CAPTURE(tensor.name);
    for (int d = 0; d < tensor.type.shape.rank(); ++d)
      CHECK(found.dims[t][static_cast<size_t>(d)] == (tensor.type.shape[d] == kTokens));
  }
}

TEST_CASE("keys go around the axis that their sequence lies on first, not another of as many ranks") {
  // One KV head: tp splits the queries of it, and with sp the keys' sequence lies over cp and tp.
  const Graph step = training_step("llama:L=1,C=8,H=4,KV=1,F=16,V=17,T=24", true, 1).value();
  const auto program = program_of(step, "cp=ring:2,tp=2,sp", kBatch, kTokens);
  CHECK_MESSAGE(program.ok(), program.status().to_string());
}
