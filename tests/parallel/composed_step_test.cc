// Steps composed of the profile of a few blocks, before anything of the whole is lowered, against the whole lowered and simulated:
// parameters, state, inputs and what is alive at once, of every device, and seconds, for every form of parallelism and several families.
#include <doctest/doctest.h>

#include <algorithm>

#include "parallel/composition/composed_memory.h"
#include "parallel/composition/composed_time.h"
#include "parallel/composition/strategy_profile.h"
#include "parallel/pricing/simulator.h"
#include "tests/parallel/composed_steps.h"

using namespace tessera;

namespace {

using test::ComposedSteps;
using test::devices_of;
using test::kComposedBatch;
using test::kComposedSymbols;
using test::ok;
using test::stages_of;
using test::steps_of;

DeviceBytes bytes_of(const RankProgram& rank) {
  DeviceBytes it;
  for (const Slot& slot : rank.slots) {
    if (slot.tier != Tier::kDevice || slot.kind == SlotKind::kTransient || slot.kind == SlotKind::kWorkspace) continue;
    (slot.kind == SlotKind::kParameter ? it.parameters : slot.kind == SlotKind::kState ? it.state : it.inputs) += slot.bytes;
  }
  it.run = rank.max_live_bytes - it.parameters - it.state - it.inputs;
  return it;
}

// Shares by which what is alive may be composed too large, and seconds be off.
struct Slack {
  double bytes = 0, seconds = 0.01;
};

void check_form(const ComposedSteps& steps, const std::string& words, Slack slack = {}) {
  CAPTURE(words);
  const StrategySpec spec = ok(parse_parallel(words)).spec;
  Plan plan = ok(apply_strategy(ok(steps.whole.bind_partly(kComposedSymbols)), spec, kComposedBatch));
  plan.symbols = kComposedSymbols;
  const Program program = ok(lower_representatives({"step", &steps.whole, &plan}, FakeCatalog()));
  const Cluster cluster = devices_of(program.ranks.size());
  const StepProfile profile =
      ok(profile_strategy(steps.few, spec, kComposedBatch, kComposedSymbols, cluster, FakeCatalog()));
  const ComposedStages stages = stages_of(steps.whole, plan, steps.like, spec);
  const std::vector<DeviceBytes> devices = ok(composed_memory(std::span(&profile, 1), stages));
  const double simulated = ok(simulate(program, "step", cluster)).seconds();
  CHECK(ok(composed_time(std::span(&profile, 1), stages, cluster)).step_s ==
        doctest::Approx(simulated).epsilon(slack.seconds));
  const size_t inside = program.ranks.size() / static_cast<size_t>(spec.pp);
  for (size_t d = 0; d < devices.size(); ++d) {
    CAPTURE(d);
    const DeviceBytes lowered = bytes_of(program.ranks[d * inside]);
    CHECK(devices[d].parameters == lowered.parameters);
    CHECK(devices[d].state == lowered.state);
    CHECK(devices[d].inputs == lowered.inputs);
    // Scalars that cross stages, and their padding, are not composed.
    const double off = static_cast<double>(devices[d].run - lowered.run) / static_cast<double>(lowered.run);
    CHECK_MESSAGE((off >= -1e-4 && off <= 1e-4 + slack.bytes),
                  devices[d].run << " composed, " << lowered.run << " lowered");
  }
}

}  // namespace

TEST_SUITE("composed steps") {
  TEST_CASE("gpt2, f32: schedules, forms of tensors, context, ZeRO") {
    const ComposedSteps steps = steps_of({"gpt2:L=16,C=256,H=8,V=1024,T=256"});
    for (const char* words : {"mb=32",
                              "mb=4",
                              "dp=2,mb=16",
                              "dp=2,mb=4",
                              "dp=2,zero=1,mb=1",
                              "dp=2,zero=2,mb=4",
                              "dp=4,zero=3,mb=2",
                              "dp=4,zero=3:2,mb=2",
                              "tp=2,mb=8",
                              "tp=2,sp,mb=8",
                              "tp=2d:2x2,mb=8",
                              "tp=3d:2x2x2,mb=8",
                              "cp=ring:2,mb=2",
                              "pp=8:1f1b,mb=1",
                              "pp=8:gpipe,mb=1",
                              "pp=8:interleaved:2,mb=1",
                              "pp=8:zb-h1,mb=1",
                              "pp=8:zb-h2,mb=1",
                              "pp=8:zb-v,mb=1",
                              "pp=4:zb-v,mb=2",
                              "pp=4:gpipe,mb=32",
                              "pp=2:1f1b,tp=2,mb=1",
                              "pp=2:1f1b,tp=2,sp,mb=1",
                              "pp=2:1f1b,dp=2,zero=1,mb=1",
                              "pp=2:1f1b,dp=2,zero=2,mb=1",
                              "pp=2:1f1b,dp=2,zero=3,mb=1",
                              "pp=2:1f1b,cp=ring:2,mb=1",
                              "pp=2:1f1b,cp=ulysses:2,mb=1",
                              "pp=2:1f1b,cp=gather:2,mb=1",
                              "pp=2:1f1b,tp=2d:2x2,mb=2",
                              "pp=4:zb-h2,dp=2,zero=3,mb=1",
                              "pp=4:1f1b,mb=1,recompute=full",
                              "pp=4:interleaved:2,tp=2,sp,mb=1,recompute=full"})
      check_form(steps, words);
  }

  TEST_CASE("gpt2, bf16: copies of parameters") {
    const ComposedSteps steps = steps_of({"gpt2:L=13,C=256,H=8,V=1024,T=256", DType::kBF16});
    for (const char* words :
         {"mb=4", "dp=2,zero=3,mb=2", "dp=2,zero=3,mb=2,keep", "pp=4:1f1b,mb=1", "pp=4:zb-h1,mb=1",
          "pp=4:zb-v,dp=2,zero=3,mb=1", "pp=2:1f1b,dp=2,zero=1,mb=2", "pp=2:1f1b,tp=2,sp,mb=1",
          "pp=4:gpipe,mb=32,recompute=full", "pp=4:zb-h1,tp=2,sp,dp=2,zero=1,mb=2"})
      check_form(steps, words);
    // Gradients of one micro-batch may be reduced while the device waits for the next, which the profile does not have.
    check_form(steps, "pp=4:zb-v,dp=2,zero=2,mb=1", {.seconds = 0.03});
  }

  TEST_CASE("gpt2 whose head is its embedding: both ends sum its gradient up") {
    const ComposedSteps steps = steps_of({"gpt2:L=8,C=256,H=8,V=1024,T=256", DType::kBF16, true});
    for (const char* words :
         {"mb=4", "pp=4:1f1b,mb=1", "pp=4:interleaved:2,mb=1", "pp=4:zb-h2,mb=1", "pp=4:zb-v,mb=1"})
      check_form(steps, words);
  }

  TEST_CASE("llama: offload, slices, one weird trick") {
    const ComposedSteps steps = steps_of({"llama:L=16,C=256,H=8,KV=4,F=512,V=1024,T=256"});
    for (const char* words : {"dp=2,zero=3,mb=2,chunks=2", "dp=2,owt,mb=2", "pp=2:1f1b,mb=1,offload=optimizer@host", "pp=2:1f1b,mb=1,offload=params@host",
                              "pp=2:1f1b,dp=2,mb=2,offload=grads@host", "dp=2,zero=3,mb=2,offload=params+optimizer+grads@host", "pp=4:zb-h2,mb=1"})
      check_form(steps, words);
    // An offloaded tensor stays until its copy is complete, which may be in the next block.
    check_form(steps, "pp=2:1f1b,mb=1,offload=activations@host", {.bytes = 0.09});
  }

  TEST_CASE("experts, encoders, windows, latents") {
    const ComposedSteps experts = steps_of({"moe:L=8,C=256,H=8,F=512,V=1024,T=256,E=8,K=2"});
    for (const char* words :
         {"ep=4,mb=2", "pp=4:1f1b,mb=1", "pp=2:zb-v,ep=2,mb=1", "pp=2:1f1b,tp=2,ep=2,mb=1"})
      check_form(experts, words);
    // Ranks of a ring wait for each other's experts, which a rank by itself does not.
    check_form(experts, "cp=ring:2,mb=1", {.seconds = 0.05});
    const ComposedSteps encoder = steps_of({"bert:L=8,C=256,H=8,F=512,V=1024,T=256"});
    for (const char* words : {"pp=4:1f1b,mb=1", "tp=2,mb=2"}) check_form(encoder, words);
    check_form(steps_of({"gemma3:L=12,C=256,H=8,KV=4,D=32,F=512,V=1024,T=256"}), "pp=4:1f1b,mb=1");
    const ComposedSteps latent = steps_of({"deepseek2:L=6,C=256,H=8,D=48,R=16,KA=64,VD=32,F=128,E=4,K=2,FS=128,FD=512,V=1024,T=256"});
    for (const char* words : {"pp=2:1f1b,mb=1", "tp=2,mb=2"}) check_form(latent, words);
  }
}
