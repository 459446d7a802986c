// Weights that are read in a narrower element type are gathered in it. Casting commutes with gathering:
// whatever is spread, and however it is gathered, not a bit of a training run changes.
#include <doctest/doctest.h>

#include <string_view>

#include "graph/base/text.h"
#include "tests/conformance/parity_harness.h"
#include "tests/test_backend.h"

using namespace tessera;
using namespace tessera::parity;

namespace {

Outcome trained(const Job& job, std::string_view words) {
  Outcome out = run(job, words);
  REQUIRE_MESSAGE(out.error == "ok", format("{}: {}", words, out.error));
  for (const MemoryReport& memory : out.memory) {
    CHECK(memory.measured_bytes == memory.predicted_bytes);
    CHECK(memory.host_measured_bytes == memory.host_predicted_bytes);
  }
  CHECK(out.allocations_after_first_step == 0);
  return out;
}

// Each of `all` leaves the bits that `words` leaves.
void check_bits(const Job& job, std::string_view words, std::initializer_list<std::string_view> all) {
  const Outcome whole = trained(job, words);
  for (const std::string_view other : all) {
    CAPTURE(other);
    const Outcome spread = trained(job, other);
    CHECK(spread.losses == whole.losses);
    CHECK(spread.weights == whole.weights);
  }
}

Job job_of(DType dtype) {
  Job job{.model = "gpt2:L=2,C=32,H=8,V=61,T=16", .dtype = dtype};
  job.gradients = false;
  job.evaluates = true;
  return job;
}

// Spread gradients are added up over devices before micro-batches, whole ones after.
constexpr auto kSpread = {"dp=2,zero=3",
                          "dp=2,zero=3,keep",
                          "dp=2,zero=3,chunks=3",
                          "dp=2,zero=3,recompute=full",
                          "dp=2,zero=2,recompute=full",
                          "dp=2,zero=2,offload=activations",
                          "dp=2,zero=3,offload=params+optimizer"};

}  // namespace

TEST_CASE("rounded weights that are spread and gathered train as whole ones do, bit by bit") {
  for (const DType dtype : {DType::kF32, DType::kF64}) {
    Job job = job_of(dtype);
    job.rounded_weights = DType::kBF16;
    check_bits(job, "dp=2", {"dp=2,zero=1"});
    check_bits(job, "dp=2,mb=2", {"dp=2,zero=1,mb=2"});
    for (const std::string_view words : kSpread) {
      check_bits(job, "dp=2", {words});
      check_bits(job, "dp=2,zero=2,mb=2", {format("{},mb=2", words)});
    }
    check_bits(job, "dp=4", {"dp=4,zero=3:2", "dp=4,zero=1:2"});
  }
}

TEST_CASE("in mixed precision weights that are spread train as whole ones do, bit by bit") {
  for (const DType precision : {DType::kBF16, DType::kF16}) {
    Job job = job_of(DType::kF32);
    job.precision = precision;
    job.steps = 2;
    if (test::test_backend() == "cpu" && precision == DType::kF16) {
      CHECK(run(job, "dp=2,zero=3").code == StatusCode::kUnsupported);  // no products in this type
      continue;
    }
    for (const std::string_view words : {"dp=2,zero=1", "dp=2,zero=2,recompute=full", "dp=2,zero=3",
                                         "dp=2,zero=3,keep", "dp=2,zero=3,recompute=full"})
      check_bits(job, "dp=2", {words});
    check_bits(job, "dp=2,mb=2", {"dp=2,zero=1,mb=2"});
    check_bits(job, "dp=2,zero=2,mb=2", {"dp=2,zero=3,mb=2"});
    check_bits(job, "dp=2,tp=2,sp", {"dp=2,tp=2,sp,zero=1", "dp=2,tp=2,sp,zero=3"});
    check_bits(job, "dp=4", {"dp=4,zero=1"});
  }
}
