// Windows, caps, documents and values of another width under plans that split attention every way, also by keys that
// come in slices or rotate: what a query sees is decided by its place in the whole sequence.
#include <doctest/doctest.h>

#include <algorithm>
#include <string>

#include "tests/conformance/parity_harness.h"

using namespace tessera;
using namespace tessera::parity;

namespace {

// Keys of attention, whole on each rank, in slices one after the other.
Status slice_keys(const Graph& step, Plan& plan) {
  for (size_t n = 0; n < step.nodes().size(); ++n) {
    if (step.nodes()[n].op->name != "attention" && step.nodes()[n].op->name != "attention_grad") continue;
    plan.nodes[n].chunk_factor = 's';
    plan.nodes[n].chunks = 3;
    plan.nodes[n].chunk_order = ChunkOrder::kBroadcast;
  }
  return {};
}

}  // namespace

TEST_SUITE("parity variants") {
  TEST_CASE("what a query sees does not depend on how attention is split") {
    print_header();
    Job job{.model = "masked"};
    for (const DType dtype : {DType::kF64, DType::kF32})
      for (const char* words :
           {"dp=3", "tp=2,sp", "tp=4", "cp=ring:3", "cp=ring:2", "cp=gather:3", "cp=ulysses:2",
            "dp=2,cp=ring:2,tp=2,sp", "dp=2,zero=3,mb=2,recompute=full", "pp=2:1f1b,mb=3"}) {
        job.dtype = dtype;
        check(measure(job, words, {}, std::string("masked: ") + words));
      }
    job.dtype = DType::kF64;
    check(measure(job, "dp=2", slice_keys, "masked: dp=2, keys in slices"));
  }

  TEST_CASE("windows, caps, documents and sinks train in bf16 as in f32, up to rounding") {
    Job job{.model = "masked", .dtype = DType::kF32, .steps = 3, .gradients = false};
    const Outcome wide = run(job, "single");
    job.precision = DType::kBF16;
    REQUIRE_MESSAGE(wide.ok(), wide.error);
    for (const char* words : {"single", "dp=2,cp=ring:2"}) {
      const Outcome narrow = run(job, words);
      REQUIRE_MESSAGE(narrow.ok(), narrow.error);
      for (size_t i = 0; i < wide.losses.size(); ++i)
        CHECK(narrow.losses[i] == doctest::Approx(wide.losses[i]).epsilon(0.01));
    }
  }
}
