// A model written down in another order trains to the same bits.
#include <doctest/doctest.h>

#include "tests/conformance/parity_harness.h"

using namespace tessera;
using namespace tessera::parity;

TEST_CASE("a model written down in any order trains to the same bits") {
  for (const std::string model :
       {"gpt2:L=2,C=32,H=8,V=61,T=16", "llama:L=2,C=32,H=8,KV=4,F=52,V=61,T=16,tied=0",
        "moe:L=2,C=32,H=4,KV=2,F=24,E=4,K=2,V=61,T=16"})
    for (const std::string_view words : {"dp=1", "dp=2,zero=2,mb=2", "tp=2,sp", "pp=2:1f1b,mb=3"}) {
      CAPTURE(model);
      CAPTURE(words);
      const Job job{.model = model, .dtype = DType::kF32, .steps = 3, .evaluates = true};
      Job other = job;
      other.reordered = 7;
      const Outcome now = run(job, words), then = run(other, words);
      REQUIRE_MESSAGE(now.error == "ok", now.error);
      REQUIRE_MESSAGE(then.error == "ok", then.error);
      CHECK(then.losses == now.losses);
      CHECK(then.gradients == now.gradients);
      CHECK(then.weights == now.weights);
      for (size_t rank = 0; rank < now.program.ranks.size(); ++rank)
        CHECK(then.program.ranks[rank].arena_bytes == now.program.ranks[rank].arena_bytes);
      // They do train.
      CHECK(now.losses.back() != now.losses.front());
    }
}
