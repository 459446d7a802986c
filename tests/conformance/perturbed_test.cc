// Random mixtures of forms under random short waits before instructions and inside communicators: no run
// stands still (a watchdog would name who waits), and every run gives the bits of the undisturbed one. 20
// runs; 500 with TESSERA_TEST_FULL=1.
#include <doctest/doctest.h>

#include <cstdio>

#include "graph/base/text.h"
#include "tests/conformance/parity_forms.h"
#include "tests/conformance/parity_harness.h"

using namespace tessera;
using namespace tessera::parity;

namespace {

Job job_for(const Form& form) {
  const int layers = form.needs == Needs::kLayers ? 4 : 2;
  const std::string model = form.needs == Needs::kExperts
                                ? format("moe:L={},C=32,H=8,KV=4,F=28,E=4,K=2,V=61,T=16", layers)
                                : format("gpt2:L={},C=32,H=8,V=61,T=16", layers);
  return Job{.model = model, .dtype = DType::kF32, .steps = 2};
}

}  // namespace

TEST_SUITE("perturbed") {
  TEST_CASE("perturbed runs of random mixtures end, with the same bits") {
    const int runs = full() ? 500 : 20, seeds = full() ? 5 : 2;
    int done = 0;
    // Mixtures that this version refuses are passed over; drawing them costs next to nothing.
    for (const Form& form : mixtures(400, 7)) {
      if (done >= runs) break;
      Job job = job_for(form);
      const Outcome plain = run(job, form.words);
      if (plain.code == StatusCode::kUnsupported || plain.code == StatusCode::kNotFound) continue;
      REQUIRE_MESSAGE(plain.ok(), format("{}: {}", form.words, plain.error));
      for (int seed = 0; seed < seeds && done < runs; ++seed, ++done) {
        job.perturbation_seed = static_cast<uint64_t>(1 + done);
        const Outcome perturbed = run(job, form.words);
        REQUIRE_MESSAGE(perturbed.ok(),
                        format("{} seed {}: {}", form.words, job.perturbation_seed, perturbed.error));
        CHECK_MESSAGE(perturbed.losses == plain.losses, form.words);
        CHECK_MESSAGE(perturbed.gradients == plain.gradients, form.words);
        CHECK_MESSAGE(perturbed.weights == plain.weights, form.words);
        for (const MemoryReport& memory : perturbed.memory)
          CHECK_MESSAGE(memory.measured_bytes == memory.predicted_bytes, form.words);
      }
      std::printf("perturbed | %-40s | %d devices | same bits\n", form.words.c_str(), form.devices);
    }
    CHECK(done == runs);
  }
}
