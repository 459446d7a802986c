// Products that multiply in TF32, under every form, against one device.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>

#include "graph/base/text.h"
#include "tests/conformance/parity_harness.h"

using namespace tessera;
using namespace tessera::parity;

namespace {

Job job_of(std::string_view model = "gpt2:L=2,C=32,H=8,V=61,T=16") {
  Job job{.model = std::string(model)};
  job.dtype = DType::kF32;
  job.steps = 3;
  job.tf32_matmuls = true;
  return job;
}

// Sums of f32 in another order are off by some 2^-22 of themselves. One number in a thousand or so lies so
// near to a tie that it is rounded the other way then, which changes one of the operands of a row's products
// by 2^-10 of itself. The loss is the mean of many rows.
constexpr double kOtherWay = 0x1p-10, kOfManyRows = kOtherWay / 100;

void check_near(const Job& job, std::string_view words) {
  const Outcome& single = on_one_device(job);
  REQUIRE_MESSAGE(single.ok(), single.error);
  const Outcome other = run(job, words);
  CAPTURE(job.model);
  CAPTURE(words);
  REQUIRE_MESSAGE(other.ok(), other.error);
  const Deviation off = deviation(job, single, other);
  MESSAGE(format("tf32: {}: loss {} gradient {}", words, off.loss, off.gradient));
  CHECK(off.loss < kOfManyRows);
  CHECK(off.gradient < kOtherWay);
}

// Kernels of products that may use TF32.
std::pair<int, int> allowing(const Program& program) {
  int allow = 0, all = 0;
  for (const RankProgram& rank : program.ranks)
    for (const KernelDesc& kernel : rank.kernels) {
      const auto found = std::ranges::find(kernel.attrs, "allow_tf32", &Attr::name);
      if (found == kernel.attrs.end()) continue;
      ++all;
      allow += found->value == AttrValue(int64_t{1}) ? 1 : 0;
    }
  return {allow, all};
}

}  // namespace

TEST_CASE("products in TF32 train as on one device, however tokens, widths and features are split") {
  for (const std::string_view words :
       {"dp=2", "dp=3", "mb=4", "tp=2", "tp=2,sp", "cp=ring:3", "dp=2,zero=1", "dp=2,zero=2", "dp=2,zero=3",
        "dp=2,zero=3,chunks=2", "dp=2,recompute=full", "dp=2,tp=2,sp,zero=3", "pp=2:1f1b,mb=3", "tp=2d:2x2"})
    check_near(job_of(), words);
  Job evaluated = job_of();
  evaluated.evaluates = true;
  check_near(evaluated, "dp=2,tp=2,zero=2");
  Job fused = job_of();
  fused.fused_loss = true;
  for (const std::string_view words : {"dp=2,zero=3", "tp=2"}) check_near(fused, words);
  for (const std::string_view words : {"dp=2,zero=3", "tp=4,sp", "cp=ulysses:2"})
    check_near(job_of("llama:L=2,C=32,H=8,KV=4,F=48,V=61,T=16"), words);
  check_near(job_of("moe:L=2,C=16,H=4,KV=2,F=24,E=4,V=37,T=16"), "dp=2");
}

TEST_CASE(
    "every product of a program allows TF32, joined with what follows it or split into phases, and none "
    "where it was not asked for") {
  for (const std::string_view model :
       {"gpt2:L=2,C=32,H=8,V=61,T=16", "moe:L=2,C=16,H=4,KV=2,F=24,E=4,V=37,T=16"})
    for (const bool fused_loss : {true, false}) {
      Job job = job_of(model);
      job.fuses_kernels = true;
      job.fused_loss = fused_loss;
      const auto [allow, all] = allowing(run(job, "tp=2").program);
      CHECK(all > 5);
      CHECK(allow == all);
      job.tf32_matmuls = false;
      CHECK(allowing(run(job, "tp=2").program) == std::pair(0, all));
    }
}

// Each operand is off by up to 2^-11 of itself, which sums average out. A product whose operands were not
// rounded, or lost more than that, would be off by nothing or by more.
TEST_CASE("matmuls in TF32 train as those in f32, except for the rounding of their operands") {
  Job rounding = job_of(), exact = rounding;
  exact.tf32_matmuls = false;
  for (Job* job : {&rounding, &exact}) job->steps = 20, job->lr = 3e-3;
  const Outcome in_tf32 = run(rounding, "dp=2"), in_f32 = run(exact, "dp=2");
  REQUIRE_MESSAGE(in_tf32.ok(), in_tf32.error);
  REQUIRE_MESSAGE(in_f32.ok(), in_f32.error);
  const Deviation off = deviation(rounding, in_f32, in_tf32);
  MESSAGE(format("tf32 and f32: loss {} gradient {}", off.loss, off.gradient));
  CHECK(off.loss > 0);
  CHECK(off.loss < 0x1p-9);
  CHECK(off.gradient > 1e-5);  // the tolerance of f32
  CHECK(off.gradient < 0x1p-8);
  CHECK(in_tf32.losses.back() < 0.95 * in_tf32.losses.front());
}
