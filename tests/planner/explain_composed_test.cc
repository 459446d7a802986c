// Explanations of composed plans against those of the same plans lowered whole: the same causes take the same time and bytes.
#include "parallel/planner/explain.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "parallel/composition/composed_time.h"
#include "parallel/composition/staged_plan.h"
#include "parallel/composition/strategy_profile.h"
#include "parallel/strategy/strategy_description.h"
#include "tests/parallel/composed_steps.h"

using namespace tessera;

namespace {

using test::kComposedBatch;
using test::kComposedSymbols;
using test::ok;

using ByCause = std::map<std::string, double>;

ByCause seconds_by_cause(const Explanation& it) {
  ByCause all;
  for (const TimeShare& share : it.time)
    all[share.axis.empty() ? share.cause : share.cause + " " + share.axis] += share.seconds;
  return all;
}

// Bytes lost between buffers are not composed.
ByCause bytes_by_cause(const Explanation& it) {
  ByCause all;
  for (const MemoryShare& share : it.memory)
    if (share.tier == Tier::kDevice && share.cause != "unused")
      all[share.cause] += static_cast<double>(share.bytes);
  return all;
}

double sum_of(const ByCause& all) {
  double sum = 0;
  for (const auto& [cause, value] : all) sum += value;
  return sum;
}

// Causes differ by no more than a share of the whole.
void check_causes(const ByCause& composed, const ByCause& lowered, double share) {
  ByCause both = composed;
  both.insert(lowered.begin(), lowered.end());
  const auto at = [](const ByCause& all, const std::string& cause) {
    return all.contains(cause) ? all.at(cause) : 0;
  };
  const double most = share * sum_of(lowered);
  for (const auto& [cause, value] : both)
    CHECK_MESSAGE(std::abs(at(composed, cause) - at(lowered, cause)) <= most,
                  cause << ": " << at(composed, cause) << " composed, " << at(lowered, cause)
                        << " lowered, of " << sum_of(lowered));
}

struct Composed {
  StrategySpec spec;
  ComposedStages stages;
  std::vector<StepProfile> variants;
  Cluster cluster;
};

ComposedExplanationInput input_of(const Composed& it) {
  ComposedExplanationInput input;
  input.spec = &it.spec, input.stages = &it.stages, input.cluster = &it.cluster, input.variants = it.variants;
  input.global_batch = kComposedBatch;
  return input;
}

Composed compose(const test::ComposedSteps& steps, const Plan& plan, const StrategySpec& spec,
                 size_t devices) {
  Composed it{spec, test::stages_of(steps.whole, plan, steps.like, spec), {}, test::devices_of(devices)};
  it.variants.push_back(ok(
      profile_strategy(steps.few, spec, kComposedBatch, kComposedSymbols, it.cluster, FakeCatalog(), true)));
  return it;
}

Plan plan_for(const test::ComposedSteps& steps, const StrategySpec& spec) {
  Plan plan = ok(apply_strategy(ok(steps.whole.bind_partly(kComposedSymbols)), spec, kComposedBatch));
  plan.symbols = kComposedSymbols;
  return plan;
}

void check_sums(const Explanation& it, const Composed& composed, int64_t reserved) {
  // A few thousand doubles, added up in another order.
  CHECK(sum_of(seconds_by_cause(it)) == doctest::Approx(it.step_s).epsilon(1e-9));
  CHECK(it.step_s ==
        doctest::Approx(ok(composed_time(composed.variants, composed.stages, composed.cluster)).step_s)
            .epsilon(1e-9));
  int64_t fullest = 0;
  for (const DeviceBytes& device : ok(composed_memory(composed.variants, composed.stages)))
    fullest = std::max(fullest, device.total() + reserved);
  CHECK(it.memory_bytes == fullest);
  CHECK(static_cast<int64_t>(sum_of(bytes_by_cause(it))) == fullest);
  for (const TimeShare& share : it.time) CHECK(share.seconds >= 0);
  for (const MemoryShare& share : it.memory) CHECK(share.bytes > 0);
}

// Shares of the whole by which a cause may be off.
struct CauseSlack {
  double bytes = 0.01, seconds = 0.02;
};

// Tensors that stand for several are as many as the lowered program has.
void check_parameters(const Explanation& composed, const Explanation& lowered) {
  const auto count = [](const Explanation& it, std::string_view kind) {
    int64_t sum = 0;
    for (const ExplainedTensor& tensor : it.tensors) sum += tensor.kind == kind ? tensor.count : 0;
    return sum;
  };
  for (const char* kind : {"parameter", "optimizer", "input"})
    CHECK(count(composed, kind) == count(lowered, kind));
  for (const ExplainedTensor& tensor : composed.tensors) {
    const auto same = std::ranges::find(lowered.tensors, tensor.name, &ExplainedTensor::name);
    REQUIRE(same != lowered.tensors.end());
    if (tensor.note.empty()) CHECK(tensor.type == same->type);
    CHECK(tensor.sharding == same->sharding);
    CHECK(tensor.tier == same->tier);
  }
}

// Explanations of a composition and of the lowered program of its plan.
Explanation check_causes_of(const Composed& composed, const Graph& whole, const Plan& plan,
                            CauseSlack slack) {
  const EntrySpec entry{"step", &whole, &plan};
  const Program program = ok(lower_representatives(entry, FakeCatalog()));
  const Explanation lowered =
      ok(explain_program(std::span(&entry, 1), program, ok(simulate(program, "step", composed.cluster))));
  const Explanation it = ok(explain_composed(input_of(composed)));
  check_sums(it, composed, 0);
  check_causes(bytes_by_cause(it), bytes_by_cause(lowered), slack.bytes);
  // Devices may end together, one of which is taken: the same one.
  PipelineShape shape = composed.stages.shape;
  if (shape.devices == 1) shape.kind = ScheduleKind::k1F1B;
  const PipelineSchedule schedule = ok(make_pipeline_schedule(shape));
  ComposedRun run = ok(composed_run(composed.variants, composed.stages, schedule, composed.cluster));
  const auto inside = static_cast<int32_t>(program.ranks.size()) / composed.spec.pp;
  run.critical = std::stoi(lowered.critical.substr(lowered.critical.find(' '))) / inside;
  Explanation same = it;
  same.time = composed_time_shares(composed.variants, composed.stages, schedule, run);
  CHECK(sum_of(seconds_by_cause(same)) == doctest::Approx(it.step_s).epsilon(1e-9));
  check_causes(seconds_by_cause(same), seconds_by_cause(lowered), slack.seconds);
  CHECK(it.micro_batches == lowered.micro_batches);
  CHECK(it.bytes_by_device.size() == static_cast<size_t>(composed.spec.pp));
  CHECK(it.timeline.rows.size() == static_cast<size_t>(composed.spec.pp));
  CHECK(it.timeline.complete);
  CHECK(it.curve.position.size() == it.curve.bytes[0].size());
  check_parameters(it, lowered);
  return it;
}

void check_explained(const test::ComposedSteps& steps, const std::string& words, CauseSlack slack = {}) {
  CAPTURE(words);
  const StrategySpec spec = ok(parse_parallel(words)).spec;
  const Plan plan = plan_for(steps, spec);
  const Composed composed = compose(steps, plan, spec, static_cast<size_t>(spec.devices()));
  const Explanation it = check_causes_of(composed, steps.whole, plan, slack);
  CHECK(it.strategy == plan.strategy);
  CHECK(it.words == describe_strategy(plan.strategy, plan.global_batch, plan.micro_batches));
}

int64_t host_bytes(const Explanation& it) {
  int64_t sum = 0;
  for (const MemoryShare& share : it.memory)
    if (share.tier == Tier::kHost) sum += share.bytes;
  return sum;
}

}  // namespace

TEST_SUITE("composed explanations") {
  TEST_CASE("gpt2: causes of time and memory are those of the lowered program") {
    const test::ComposedSteps steps = test::steps_of({"gpt2:L=8,C=256,H=8,V=1024,T=256"});
    for (const char* words :
         {"mb=4", "dp=2,mb=4", "dp=2,zero=1,mb=4", "dp=2,zero=2,mb=4", "dp=4,zero=3,mb=2", "tp=2,sp,mb=8",
          "mb=4,recompute=full", "pp=4:1f1b,mb=1", "pp=4:1f1b,mb=1,recompute=full", "pp=4:zb-v,mb=1",
          "pp=2:1f1b,tp=2,sp,mb=1", "pp=2:1f1b,dp=2,zero=3,mb=1"})
      check_explained(steps, words);
  }

  TEST_CASE("bf16, offload, experts") {
    check_explained(test::steps_of({"gpt2:L=8,C=256,H=8,V=1024,T=256", DType::kBF16}),
                    "pp=2:1f1b,dp=2,zero=1,mb=2");
    const test::ComposedSteps llama = test::steps_of({"llama:L=8,C=256,H=8,KV=4,F=512,V=1024,T=256"});
    for (const char* words :
         {"pp=2:1f1b,mb=1,offload=optimizer@host", "dp=2,zero=3,mb=2,offload=params+optimizer@host"})
      check_explained(llama, words);
    const test::ComposedSteps experts = test::steps_of({"moe:L=8,C=256,H=8,F=512,V=1024,T=256,E=8,K=2"});
    for (const char* words : {"ep=4,mb=2", "pp=2:1f1b,tp=2,ep=2,mb=1"}) check_explained(experts, words);
  }

  TEST_CASE("some blocks of a stage recomputed: a decision of its own, in time and memory too") {
    const test::ComposedSteps steps = test::steps_of({"gpt2:L=8,C=256,H=8,V=1024,T=256"});
    StrategySpec spec = ok(parse_parallel("pp=2:1f1b,mb=1")).spec;
    Composed composed = compose(steps, plan_for(steps, spec), spec, 2);
    spec.recompute = RecomputeForm::kFull;
    composed.variants.push_back(ok(profile_strategy(steps.few, spec, kComposedBatch, kComposedSymbols,
                                                    composed.cluster, FakeCatalog(), true)));
    // The first stage: its embedding and four blocks, of which the first three are recomputed.
    for (size_t i = 1; i <= 3; ++i) composed.stages.blocks[0][i].variant = 1;
    Plan plan = ok(staged_plan(ok(steps.whole.bind_partly(kComposedSymbols)), composed.spec, composed.stages,
                               kComposedBatch));
    plan.symbols = kComposedSymbols;
    const Explanation it = check_causes_of(composed, steps.whole, plan, {});
    REQUIRE(it.blocks.size() == 2);
    CHECK(it.blocks[0].name == "stage 0: block.0 to 3");
    CHECK(it.blocks[0].recomputed == 3);
    CHECK(it.blocks[0].recompute == "3 of 4 blocks");
    CHECK(it.blocks[1].name == "stage 1: block.4 to 7");
    CHECK(it.blocks[1].recompute == "none");
  }

  TEST_CASE("what offload holds on the host, what is reserved, runners-up and reasons") {
    const test::ComposedSteps steps = test::steps_of({"gpt2:L=4,C=256,H=8,V=1024,T=256"});
    const StrategySpec spec = ok(parse_parallel("mb=4,offload=optimizer@host")).spec;
    const Plan plan = plan_for(steps, spec);
    const Composed composed = compose(steps, plan, spec, 1);
    constexpr int64_t kReserved = 1 << 20;
    ComposedExplanationInput input = input_of(composed);
    input.reserved_bytes = kReserved, input.memory_limit = 1 << 30, input.drawings.wanted = false;
    input.bound_s = 1, input.gap = 0.5;
    RunnerUp other;
    other.strategy = "single", other.step_s = 1e-3, other.bytes = int64_t{2} << 30,
    other.over_bytes = int64_t{1} << 30;
    input.runners_up = {other};
    input.reasons = {"given"};
    const Explanation it = ok(explain_composed(input));
    check_sums(it, composed, kReserved);
    CHECK(bytes_by_cause(it).at("reserved") == kReserved);
    // Two moments of every parameter, which are then nowhere else, and the step's count.
    CHECK(host_bytes(it) >= 2 * static_cast<int64_t>(bytes_by_cause(it).at("parameters")));
    CHECK(it.runners_up[0].loses_s == doctest::Approx(1e-3 - it.step_s));
    REQUIRE(it.reasons.size() >= 2);
    CHECK(it.reasons[0] == "given");
    CHECK(it.reasons[1].starts_with("The memory limit costs"));
    CHECK(it.timeline.spans.empty());
    double sum = 0;
    for (const auto& [name, seconds] : step_seconds(it.time)) sum += seconds;
    CHECK(sum == doctest::Approx(it.step_s).epsilon(1e-9));
    input.variants = {};
    CHECK(explain_composed(input).status().message().starts_with("0 profiles and 1 lists"));
    Composed plain = composed;
    plain.variants[0].breakdown = {};
    CHECK(explain_composed(input_of(plain)).status().message().find("without a breakdown") !=
          std::string::npos);
  }
}
