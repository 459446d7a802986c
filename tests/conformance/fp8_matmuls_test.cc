// Linear layers in 8 bits, under every form, against one device: scales are those of whole tensors, so that
// codes are the same however tensors are split.
#include <doctest/doctest.h>

#include <cmath>
#include <string_view>

#include "graph/base/text.h"
#include "tests/conformance/parity_harness.h"

using namespace tessera;
using namespace tessera::parity;

namespace {

Job job_of(std::string_view model = "gpt2:L=2,C=32,H=8,V=61,T=16") {
  Job job{.model = std::string(model)};
  job.steps = 3;
  job.fp8_matmuls = true;
  return job;
}

}  // namespace

TEST_CASE("products in 8 bits train as on one device, however tokens, widths and features are split") {
  const Job job = job_of();
  for (const std::string_view words :
       {"dp=2", "dp=3", "tp=2", "tp=2,sp", "tp=4", "cp=ring:3", "dp=2,zero=1", "dp=2,zero=2", "dp=2,zero=3",
        "dp=2,zero=3,keep", "dp=2,zero=3,chunks=2", "dp=2,zero=3,recompute=full", "dp=2,recompute=full",
        "dp=2,tp=2,sp,zero=3", "dp=2,offload=activations", "tp=2d:2x2", "tp=2.5d:2x2x1", "tp=3d:2x2x2"})
    check(measure(job, words, {}, format("fp8: {}", words)));
  Job evaluated = job;
  evaluated.evaluates = true;
  check(measure(evaluated, "dp=2,tp=2,zero=2", {}, "fp8, evaluated"));
  const Job llama = job_of("llama:L=2,C=32,H=8,KV=4,F=48,V=61,T=16");
  for (const std::string_view words : {"dp=2,zero=3", "tp=4,sp", "cp=ulysses:2"})
    check(measure(llama, words, {}, format("fp8, llama: {}", words)));
}

// A micro-batch is a tensor of its own. As scales are powers of two, another one changes only what becomes
// smaller than the smallest normal number, which is 2^-15 of the largest (e4m3: 2^-6 of 448), and by half a
// step there: 2^-19 of the largest. Sums of many such numbers stay far below 2^-14 of what all of them make.
TEST_CASE("in micro-batches products in 8 bits differ by what underflows alone") {
  constexpr double kUnderflow = 0x1p-14;
  const Job job = job_of();
  const Outcome& single = on_one_device(job);
  REQUIRE_MESSAGE(single.ok(), single.error);
  for (const std::string_view words :
       {"mb=4", "dp=2,mb=3", "dp=2,zero=3,mb=3", "pp=2:1f1b,mb=3", "tp=2,pp=2:zb-h1,mb=6"}) {
    const Outcome other = run(job, words);
    CAPTURE(words);
    REQUIRE_MESSAGE(other.ok(), other.error);
    const Deviation off = deviation(job, single, other);
    MESSAGE(format("fp8: {}: loss {} gradient {}", words, off.loss, off.gradient));
    CHECK(off.loss < kUnderflow / 100);  // the mean of many rows
    CHECK(off.gradient < kUnderflow);
  }
}

// Numbers of 8 bits have 4 (e4m3) and 3 (e5m2) bits: each is off by up to 2^-4 (2^-3) of itself, which sums
// of many average out. A step that went the wrong way, or a scale that was left out, would be off by all of
// it.
TEST_CASE("matmuls in 8 bits train as those in 64, except for the rounding to 8 bits") {
  Job job_in_8 = job_of(), job_in_64 = job_in_8;
  job_in_64.fp8_matmuls = false;
  for (Job* job : {&job_in_8, &job_in_64}) job->steps = 20, job->lr = 3e-3;
  const Outcome in_8 = run(job_in_8, "dp=2"), in_64 = run(job_in_64, "dp=2");
  REQUIRE_MESSAGE(in_8.ok(), in_8.error);
  REQUIRE_MESSAGE(in_64.ok(), in_64.error);
  MESSAGE(format("losses {} to {} in 8 bits, {} to {} in 64", in_8.losses.front(), in_8.losses.back(),
                 in_64.losses.front(), in_64.losses.back()));
  bool differ = false;
  for (size_t step = 0; step < in_8.losses.size(); ++step) {
    CHECK(std::fabs(in_8.losses[step] - in_64.losses[step]) < 0.02 * in_64.losses[step]);
    differ |= in_8.losses[step] != in_64.losses[step];
  }
  CHECK(differ);
  CHECK(in_8.losses.back() < 0.95 * in_8.losses.front());
  for (const auto& [name, gradient] : in_64.gradients) {
    double dot = 0, squares = 0, other = 0;
    for (size_t i = 0; i < gradient.size(); ++i) {
      dot += gradient[i] * in_8.gradients.at(name)[i];
      squares += gradient[i] * gradient[i];
      other += in_8.gradients.at(name)[i] * in_8.gradients.at(name)[i];
    }
    if (squares < 1e-12) continue;  // mathematically zero: biases of keys
    CHECK_MESSAGE(dot > 0.98 * std::sqrt(squares * other), name);
  }
}
