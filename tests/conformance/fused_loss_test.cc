// Head and loss as one op, carried out under every form, against one device that keeps its logits.
#include <doctest/doctest.h>

#include <algorithm>
#include <string_view>

#include "graph/base/text.h"
#include "tests/conformance/parity_harness.h"

using namespace tessera;
using namespace tessera::parity;

namespace {

Job job_of(std::string model) {
  Job job{.model = std::move(model)};
  job.steps = 3;
  job.fused_loss = true;
  return job;
}

int64_t arena_of(const Job& job, std::string_view words) {
  const Outcome out = run(job, words);
  REQUIRE(out.error == "ok");
  int64_t bytes = 0;
  for (const MemoryReport& memory : out.memory) {
    CHECK(memory.measured_bytes == memory.predicted_bytes);
    bytes = std::max(bytes, memory.predicted_bytes);
  }
  return bytes;
}

}  // namespace

TEST_CASE("a fused loss trains as logits do, however tokens, vocabulary and features are split") {
  Job job = job_of("gpt2:L=2,C=32,H=8,V=61,T=16");
  job.evaluates = true;
  for (const std::string_view words :
       {"single", "dp=3", "mb=4", "tp=2", "tp=3,sp", "cp=ring:3", "cp=ulysses:2", "dp=2,zero=3,mb=3",
        "dp=2,tp=2,sp,zero=3,mb=3", "tp=2d:2x2", "tp=3d:2x2x2", "dp=2,recompute=full",
        "dp=2,offload=activations", "dp=2,cp=ring:2,tp=2,sp"})
    check(measure(job, words, {}, format("fused loss: {}", words)));
}

TEST_CASE("a fused loss trains as logits do where the head is not tied, and with an auxiliary loss") {
  for (const std::string_view model :
       {"llama:L=2,C=32,H=8,KV=4,F=52,V=61,T=16,tied=0", "moe:L=2,C=16,H=4,KV=2,F=24,E=4,V=37,T=16"}) {
    const Job job = job_of(std::string(model));
    for (const std::string_view words : {"mb=4", "tp=2", "dp=2,tp=2,sp,zero=2", "tp=2.5d:2x2x1"})
      check(measure(job, words, {}, format("fused loss: {}", words)));
  }
}

TEST_CASE("a fused loss with sharded experts: the channels of its head are no experts") {
  const Job job = job_of("moe:L=1,C=16,H=4,KV=2,F=24,E=4,V=37,T=16");
  for (const std::string_view words : {"ep=2", "ep=2,tp=2,sp"})
    check(measure(job, words, {}, format("fused loss: {}", words)));
}

TEST_CASE("a fused loss at the end of a pipeline") {
  for (const bool tied : {true, false}) {
    Job job = job_of("gpt2:L=4,C=16,H=4,V=37,T=8");
    job.tied = tied;
    job.tokens = 7;
    for (const std::string_view words :
         {"pp=2:1f1b,mb=3", "pp=2:gpipe,mb=3", "pp=2:zb-v,mb=3", "tp=2,pp=2:zb-h1,mb=6"})
      check(measure(job, words, {}, format("fused loss: {}", words)));
  }
}

TEST_CASE("a fused loss of a frozen head, whose gradient is left out") {
  Job job = job_of("gpt2:L=2,C=32,H=8,V=61,T=16");
  job.trainable = {"block.1"};
  for (const std::string_view words : {"mb=4", "tp=2"})
    check(measure(job, words, {}, format("frozen: {}", words)));
}

TEST_CASE("losses of tokens apart train as logits do, however tokens, vocabulary and features are split") {
  Job job = job_of("gpt2:L=2,C=32,H=8,V=61,T=16");
  job.squares_losses = true;
  for (const std::string_view words :
       {"single", "dp=3", "mb=4", "tp=2", "tp=3,sp", "cp=ring:3", "dp=2,zero=3,mb=3",
        "dp=2,tp=2,sp,zero=3,mb=3", "tp=2d:2x2", "tp=3d:2x2x2", "dp=2,recompute=full",
        "dp=2,offload=activations", "pp=2:1f1b,mb=3", "tp=2,pp=2:zb-h1,mb=6"})
    check(measure(job, words, {}, format("losses apart: {}", words)));
  job.trainable = {"block.1"};  // a head without a gradient
  for (const std::string_view words : {"mb=4", "tp=2"})
    check(measure(job, words, {}, format("losses apart, frozen: {}", words)));
}

TEST_CASE("a fused loss leaves out the logits and their gradient, and the arena is what was predicted") {
  Job job = job_of("gpt2:L=1,C=16,H=2,V=4001,T=64");
  job.dtype = DType::kF32;
  job.batch = 48;
  job.tokens = 64;
  job.steps = 1;
  job.gradients = false;
  Job with_logits = job;
  with_logits.fused_loss = false;
  const int64_t logits = job.batch * job.tokens * 4001 * 4;
  // 512 rows at a time are a sixth of them; what else the step holds is far less.
  for (const bool squares_losses : {false, true}) {
    job.squares_losses = with_logits.squares_losses = squares_losses;
    CHECK(arena_of(with_logits, "single") - arena_of(job, "single") > logits / 2);
    CHECK(arena_of(with_logits, "tp=2") - arena_of(job, "tp=2") > logits / 4);
  }
}
