// Explanations of lowered programs: time and memory by cause add up, and mean what they say.
#include "graph/explanation.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "parallel/planner/explain.h"
#include "tests/fake_cluster.h"
#include "tests/parallel/step_graphs.h"

using namespace tessera;

namespace {

Cluster slow_links() { return fake_cluster(0, {1e9, 1e-6}, 1e12); }

struct Explained {
  Program program;
  Simulation simulation;
  Explanation explanation;
};

Explained explained(std::string_view parallel, std::string_view model = "gpt2:L=2,C=64,H=4,V=128,T=32") {
  const Result<Graph> step = training_step(model);
  REQUIRE(step.ok());
  const Result<Plan> plan = plan_of(*step, parallel, 8, 32);
  if (!plan.ok()) MESSAGE(plan.status().to_string());
  REQUIRE(plan.ok());
  const EntrySpec entry{"train_step", &*step, &*plan};
  Result<Program> program = lower(std::span(&entry, 1), FakeCatalog());
  REQUIRE(program.ok());
  Result<Simulation> simulation = simulate(*program, "train_step", slow_links());
  REQUIRE(simulation.ok());
  Result<Explanation> explanation = explain_program(std::span(&entry, 1), *program, *simulation);
  if (!explanation.ok()) MESSAGE(explanation.status().to_string());
  REQUIRE(explanation.ok());
  return {std::move(program).value(), std::move(simulation).value(), std::move(explanation).value()};
}

double seconds(const Explanation& explanation, std::string_view cause, std::string_view axis = "") {
  for (const TimeShare& share : explanation.time)
    if (share.cause == cause && share.axis == axis) return share.seconds;
  return 0;
}

int64_t bytes(const Explanation& explanation, std::string_view cause, Tier tier = Tier::kDevice) {
  for (const MemoryShare& share : explanation.memory)
    if (share.cause == cause && share.tier == tier) return share.bytes;
  return 0;
}

int64_t slot_bytes(const RankProgram& rank, SlotKind kind) {
  int64_t sum = 0;
  for (const Slot& slot : rank.slots)
    if (slot.kind == kind && slot.tier == Tier::kDevice) sum += slot.bytes;
  return sum;
}

}  // namespace

TEST_CASE("time by cause adds up to the simulated step and memory by cause to the arena, to the byte") {
  for (const char* parallel :
       {"dp=1", "dp=2", "tp=2", "tp=2,sp", "dp=2,tp=2,zero=1", "dp=4,zero=3", "pp=2,mb=2",
        "pp=2:gpipe,mb=2,dp=2", "pp=2:zb-h1,mb=2", "dp=1,recompute=full", "cp=ring:2",
        "dp=2,offload=optimizer", "tp=2d:2x2", "dp=2,mb=1,zero=2", "pp=2:interleaved:2,mb=2"}) {
    CAPTURE(parallel);
    const char* model = std::string_view(parallel).find("interleaved") == std::string_view::npos
                            ? "gpt2:L=2,C=64,H=4,V=128,T=32"
                            : "gpt2:L=4,C=64,H=4,V=128,T=32";
    const Explained it = explained(parallel, model);
    double sum = 0;
    for (const TimeShare& share : it.explanation.time) {
      CHECK(share.seconds >= 0);
      CHECK(share.hidden_s >= 0);
      sum += share.seconds;
    }
    // Whole nanoseconds, added up as doubles.
    CHECK(std::abs(sum - it.explanation.step_s) <= 1e-12);
    CHECK(it.explanation.step_s == it.simulation.seconds());
    int64_t device = 0, host = 0, largest = 0;
    for (const MemoryShare& share : it.explanation.memory)
      (share.tier == Tier::kDevice ? device : host) += share.bytes;
    for (const RankProgram& rank : it.program.ranks) largest = std::max(largest, rank.arena_bytes);
    CHECK(device == largest);
    CHECK(it.explanation.memory_bytes == largest);
    // Unused bytes are lost by the layout: no more than the arena above the live bytes.
    for (const RankProgram& rank : it.program.ranks)
      if (rank.arena_bytes == largest) {
        CHECK(bytes(it.explanation, "unused") == rank.arena_bytes - rank.max_live_bytes);
        CHECK(host == rank.host_arena_bytes + rank.file_arena_bytes);
        break;
      }
  }
}

TEST_CASE("parameters, state and gradients in the explanation are those of the program's slots") {
  const Explained one = explained("dp=1");
  const RankProgram& rank = one.program.ranks[0];
  CHECK(bytes(one.explanation, "parameters") == slot_bytes(rank, SlotKind::kParameter));
  CHECK(bytes(one.explanation, "optimizer") == slot_bytes(rank, SlotKind::kState));
  CHECK(bytes(one.explanation, "optimizer") >= 2 * bytes(one.explanation, "parameters"));
  const Explained sharded = explained("dp=4,zero=3");
  CHECK(bytes(sharded.explanation, "parameters") < bytes(one.explanation, "parameters") / 3);
  const Explained summed = explained("dp=1,mb=1");
  // Gradients of all parameters are held while micro-batches are summed.
  CHECK(bytes(summed.explanation, "gradients") >= bytes(summed.explanation, "parameters") / 2);
}

TEST_CASE("recomputation, communication by axis, the bubble and offload appear where the plan has them") {
  const Explained plain = explained("dp=1");
  CHECK(seconds(plain.explanation, "recompute") == 0);
  CHECK(seconds(plain.explanation, "update") > 0);
  CHECK(seconds(plain.explanation, "waiting") == 0);
  const Explained again = explained("dp=1,recompute=full");
  CHECK(seconds(again.explanation, "recompute") > 0);
  CHECK(seconds(again.explanation, "compute") ==
        doctest::Approx(seconds(plain.explanation, "compute")).epsilon(1e-9));
  const Explained both = explained("dp=2,tp=2");
  CHECK(seconds(both.explanation, "communication", "tp") > 0);
  CHECK(seconds(both.explanation, "communication", "dp") > 0);
  CHECK(seconds(both.explanation, "communication", "pp") == 0);
  const Explained pipeline = explained("pp=2,mb=2");
  CHECK(seconds(pipeline.explanation, "bubble") > 0);
  CHECK(bytes(explained("dp=1,offload=optimizer").explanation, "optimizer", Tier::kHost) > 0);
}

TEST_CASE("what is kept for backward shrinks with recomputation, and the tensors say so") {
  const char* model = "gpt2:L=4,C=64,H=4,V=32,T=32";
  const Explained plain = explained("dp=1", model), again = explained("dp=1,recompute=full", model);
  const auto most = [](const Explanation& it) {
    for (size_t c = 0; c < it.curve.causes.size(); ++c)
      if (it.curve.causes[c] == "activations") return *std::ranges::max_element(it.curve.bytes[c]);
    return int64_t{0};
  };
  CHECK(most(plain.explanation) > 0);
  CHECK(most(again.explanation) < most(plain.explanation));
  const auto noted = [](const Explanation& it) {
    return std::ranges::count_if(
        it.tensors, [](const ExplainedTensor& t) { return t.note.find("recomputed") != std::string::npos; });
  };
  CHECK(noted(plain.explanation) == 0);
  CHECK(noted(again.explanation) > 0);
}

TEST_CASE("equal blocks are one decision, with factors and stored specs by axis name") {
  const Explained it = explained("dp=2,tp=2,zero=3", "gpt2:L=4,C=64,H=4,V=128,T=32");
  const auto block = std::ranges::find(it.explanation.blocks, int64_t{4}, &BlockDecision::count);
  REQUIRE(block != it.explanation.blocks.end());
  CHECK(block->name == "block.0 to 3");
  const auto op = [&](std::string_view name) -> std::string {
    for (const auto& [what, how] : block->ops)
      if (what.find(name) != std::string::npos) return how;
    return "absent";
  };
  CHECK(op("q.weight").find("over tp") != std::string::npos);
  CHECK(op("q.weight").find("over dp") != std::string::npos);
  CHECK(std::ranges::any_of(block->parameters, [](const auto& p) {
    return p.first == "fc.weight" && p.second.find("dp") != std::string::npos;
  }));
}

TEST_CASE("the timeline has every instruction, the memory curve peaks at the live bytes") {
  const Explained it = explained("dp=2,tp=2,zero=1");
  size_t instructions = 0;
  for (const RankProgram& rank : it.program.ranks) instructions += rank.entries[0].code.size();
  CHECK(it.explanation.timeline.spans.size() == instructions);
  CHECK(it.explanation.timeline.complete);
  const MemoryCurve& curve = it.explanation.curve;
  int64_t most = 0;
  for (size_t p = 0; p < curve.position.size(); ++p) {
    int64_t sum = 0;
    for (const auto& cause : curve.bytes) sum += cause[p];
    most = std::max(most, sum);
  }
  CHECK(most + bytes(it.explanation, "unused") == it.explanation.memory_bytes);
}
