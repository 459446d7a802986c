// Programs of pipelines: the order that ranks carry out is the order that was simulated, what they hold stays
// within the schedule's bound, and stages are cut as pinned.
#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <set>

#include "graph/base/text.h"
#include "parallel/pipeline/pipeline_replay.h"
#include "parallel/strategy/stage_cut.h"
#include "tests/parallel/step_graphs.h"

using namespace tessera;

namespace {

constexpr std::string_view kModel = "gpt2:L=8,C=16,H=4,V=37,T=8";
constexpr std::string_view kSchedules[] = {"gpipe", "1f1b", "interleaved:2", "zb-h1", "zb-h2", "zb-v"};

struct Lowered {
  Graph step;
  Plan plan;
  Program program;
  PipelineShape shape;
};

Lowered lowered(std::string_view words, int64_t batch, bool tied = true) {
  CAPTURE(words);
  Lowered it;
  auto step = training_step(kModel, tied);
  REQUIRE(step.ok());
  it.step = std::move(*step);
  auto plan = plan_of(it.step, words, batch, 7);
  REQUIRE_MESSAGE(plan.ok(), plan.status().to_string());
  it.plan = std::move(*plan);
  const EntrySpec entry{"train_step", &it.step, &it.plan};
  auto program = lower(std::span(&entry, 1), FakeCatalog());
  REQUIRE_MESSAGE(program.ok(), program.status().to_string());
  it.program = std::move(*program);
  const auto pins = parse_parallel(words);
  it.shape = {pins->spec.schedule, pins->spec.pp, pins->spec.virtual_stages, it.plan.micro_batches};
  return it;
}

// A rank's actions, one entry for each run of kernels of one action.
std::vector<PipelineAction> carried_out(const Lowered& it, size_t rank) {
  std::vector<PipelineAction> actions;
  const RankProgram& program = it.program.ranks[rank];
  for (const Instruction& instruction : program.entries[0].code) {
    const auto* kernel = std::get_if<KernelInst>(&instruction);
    if (kernel == nullptr || kernel->node == kNoNode) continue;
    const Phase phase = it.step.node(kernel->node).phase;
    if (phase == Phase::kUpdate) continue;
    PipelineAction action;
    action.work = phase == Phase::kForward         ? PipelineWork::kForward
                  : !it.shape.splits_backward()    ? PipelineWork::kBackward
                  : phase == Phase::kBackwardInput ? PipelineWork::kBackwardInput
                                                   : PipelineWork::kBackwardWeight;
    action.stage = it.plan.nodes[index(kernel->node)].stage;
    action.micro_batch = kernel->micro_batch;
    if (actions.empty() || actions.back() != action) actions.push_back(action);
  }
  return actions;
}

}  // namespace

TEST_CASE("ranks carry out the order that was simulated, and hold no more than its bound") {
  for (const std::string_view schedule : kSchedules)
    for (const int32_t pp : {2, 4})
      for (const int64_t m : {1, 3, 4, 8}) {
        // Untied: the sum of tied gradients, in the update phase, is no action of a schedule.
        const Lowered it = lowered(format("pp={}:{},mb=1", pp, schedule), m, false);
        CAPTURE(schedule);
        CAPTURE(pp);
        CAPTURE(m);
        const Status sound = verify(it.program);
        CHECK_MESSAGE(sound.ok(), sound.to_string());
        const auto simulated = make_pipeline_schedule(it.shape);
        REQUIRE(simulated.ok());
        for (size_t rank = 0; rank < it.program.ranks.size(); ++rank) {
          const std::vector<PipelineAction> actions = carried_out(it, rank);
          CHECK(actions == simulated->devices[rank]);
          int32_t live = 0, most = 0;
          for (const PipelineAction& action : actions) {
            live += action.work == PipelineWork::kForward;
            live -= action.work == PipelineWork::kBackward || action.work == PipelineWork::kBackwardWeight;
            most = std::max(most, live);
          }
          CHECK(most <= live_bound(it.shape, static_cast<int32_t>(rank)));
        }
      }
}

TEST_CASE("1f1b needs less memory than gpipe, and the last stage the least activations") {
  const Lowered gpipe = lowered("pp=4:gpipe,mb=1", 16), one = lowered("pp=4:1f1b,mb=1", 16);
  for (size_t rank = 0; rank < 4; ++rank)
    CHECK(one.program.ranks[rank].arena_bytes < gpipe.program.ranks[rank].arena_bytes);
}

TEST_CASE("a boundary carries one activation forward and its gradient back, per micro-batch") {
  const Lowered it = lowered("pp=2:1f1b,mb=2", 8, false);
  const int64_t activation = 2 * 7 * 16 * 4;  // [mb, T, C] in f32
  for (size_t rank = 0; rank < 2; ++rank) {
    int64_t messages = 0, scalars = 0;
    for (const Instruction& instruction : it.program.ranks[rank].entries[0].code)
      if (const auto* send = std::get_if<SendInst>(&instruction)) {
        messages += send->bytes == activation;
        scalars += send->bytes == 4;
        CHECK((send->bytes == activation || send->bytes == 4));
      }
    CHECK(messages == 4);  // 4 micro-batches
    CHECK(scalars >= 1);   // the square of the gradient norm, and the factor it makes
  }
}

TEST_CASE("tied parameters have an owner and mirrors; their gradient is sent once") {
  const Lowered it = lowered("pp=2:1f1b,mb=1", 6);
  const auto embedding = it.step.find_tensor("token_embedding");
  REQUIRE(embedding);
  const StoredTensor* stored = it.plan.find_stored(*embedding);
  REQUIRE(stored != nullptr);
  REQUIRE(stored->placements.size() == 2);
  CHECK(stored->placements[0].mesh == 0);
  CHECK(stored->placements[1].mesh == 1);
  const int64_t bytes = 37 * 16 * 4;
  const auto count = [&](size_t rank) {
    int64_t sent = 0;
    for (const Instruction& instruction : it.program.ranks[rank].entries[0].code)
      if (const auto* send = std::get_if<SendInst>(&instruction)) sent += send->bytes == bytes;
    return sent;
  };
  CHECK(count(1) == 1);  // its gradient, to the owner
  CHECK(count(0) == 1);  // the new value, back
}

TEST_CASE("stages are whole blocks in order, and more than there are is refused with the nearest") {
  const Lowered it = lowered("pp=3:1f1b,mb=1", 6);
  std::map<std::string, std::set<int32_t>> stages;
  int32_t last = 0;
  for (size_t n = 0; n < it.step.nodes().size(); ++n) {
    const Node& node = it.step.nodes()[n];
    const int32_t stage = it.plan.nodes[n].stage;
    if (node.phase == Phase::kForward) {
      CHECK(stage >= last);
      last = stage;
      if (node.scope.starts_with("block.")) stages[node.scope.substr(0, 7)].insert(stage);
      if (node.scope == "embedding") CHECK(stage == 0);
      if (node.scope == "loss") CHECK(stage == 2);
    } else if (node.forward != kNoNode && node.op->name != "add") {  // sums may run later, where addends are
      CHECK(stage == it.plan.nodes[index(node.forward)].stage);
    }
  }
  CHECK(stages.size() == 8);
  for (const auto& [block, in] : stages) CHECK(in.size() == 1);

  const auto step = training_step(kModel);
  const auto refused = plan_of(*step, "pp=5:interleaved:2,mb=1", 8, 7);
  REQUIRE(!refused.ok());
  CHECK(refused.status().message().find("the model has 8; the nearest that fits is pp=5 with 1") !=
        std::string_view::npos);
  const auto v = plan_of(*step, "pp=5:zb-v,mb=1", 8, 7);  // always two stages a device
  REQUIRE(!v.ok());
  CHECK(v.status().message().find("the nearest that fits is pp=4 with 2") != std::string_view::npos);
}

TEST_CASE("plans whose stages do not fit the schedule are refused") {
  const Lowered it = lowered("pp=2:1f1b,mb=1", 4);
  const auto message = [&](const Plan& plan) {
    const EntrySpec entry{"train_step", &it.step, &plan};
    return std::string(lower(std::span(&entry, 1), FakeCatalog()).status().message());
  };
  Plan plan = it.plan;
  plan.schedule = ScheduleKind::kNone;
  CHECK(message(plan).find("without a schedule") != std::string::npos);
  plan = it.plan;
  plan.stages[1].mesh.devices = {0};
  CHECK(!message(plan).empty());
  plan = it.plan;
  for (NodePlan& node : plan.nodes) node.stage = 1 - node.stage;  // backwards
  CHECK(!message(plan).empty());
  plan = it.plan;
  for (StoredTensor& stored : plan.stored) stored.placements.resize(1);
  CHECK(message(plan).find("not placed there") != std::string::npos);
}
