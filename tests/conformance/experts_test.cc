// A mixture of experts where it could go wrong beyond what the parity suite sees: tokens dropped for want of
// slots, a heavy auxiliary loss, and what the communicators count.
#include <doctest/doctest.h>

#include <cmath>

#include "graph/base/text.h"
#include "tests/conformance/parity_harness.h"

using namespace tessera;
using namespace tessera::parity;

namespace {

// Two experts of four for every token, of whose choices some half find no slot, and a balance loss that
// weighs.
constexpr const char* kCrowded = "moe:L=2,C=32,H=4,KV=2,F=20,E=4,K=2,V=31,T=16,capacity=0.5,aux=0.5,z=0.05";

double largest_difference(const std::vector<double>& a, const std::vector<double>& b) {
  double most = a.size() == b.size() ? 0 : 1;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) most = std::max(most, std::abs(a[i] - b[i]));
  return most;
}

}  // namespace

TEST_CASE("which tokens are dropped depends neither on the devices nor on the micro-batches") {
  const Job job{.model = kCrowded, .lr = 3e-3};
  print_header();
  for (const char* words : {"mb=1", "mb=4", "dp=3,mb=2", "ep=2", "ep=3", "ep=4,mb=1", "ep=2,dp=2,zero=2,mb=1",
                            "tp=2,sp", "ep=2,tp=2,sp,zero=3"})
    check(measure(job, words));
}

TEST_CASE("experts spread over devices mix with every other form") {
  const Job job{.model = kCrowded, .lr = 3e-3};
  print_header();
  for (const char* words : {"ep=2,pp=2:1f1b,mb=2", "ep=2,pp=2:zb-h1,zero=1,mb=2", "ep=2,tp=2,cp=ring:2",
                            "ep=3,cp=ulysses:2,zero=2", "ep=2,tp=2d:2x2", "ep=2,recompute=full",
                            "ep=2,dp=2,zero=3,chunks=2,keep", "ep=2,offload=activations"})
    check(measure(job, words));
}

TEST_CASE("tokens are dropped there, and the auxiliary loss is part of what is trained on") {
  const Job job{.model = kCrowded};
  const Outcome& crowded = on_one_device(job);
  REQUIRE(crowded.error == "ok");
  Job roomy = job, plain = job;
  roomy.model = format("{}", kCrowded);
  roomy.model.replace(roomy.model.find("capacity=0.5"), 12, "capacity=0.0");
  plain.model.replace(plain.model.find("aux=0.5,z=0.05"), 14, "aux=0,z=0");
  CHECK(largest_difference(crowded.losses, on_one_device(roomy).losses) > 1e-4);
  // Near initial values all experts are used equally: by layer the balance loss is near 1, the z loss near log(4)^2.
  const double auxiliary_loss = crowded.losses.front() - on_one_device(plain).losses.front();
  CHECK(auxiliary_loss == doctest::Approx(2 * (0.5 + 0.05 * std::log(4.0) * std::log(4.0))).epsilon(0.1));
}

TEST_CASE("a mixture of experts and an encoder learn") {
  for (const char* model :
       {"moe:L=2,C=32,H=4,KV=2,F=28,E=4,K=2,V=31,T=16", "encoder:L=2,C=32,H=4,V=31,T=16"}) {
    Job job{.model = model, .dtype = DType::kF32, .lr = 1e-2, .steps = 30};
    job.gradients = false;
    const Outcome& out = on_one_device(job);
    REQUIRE(out.error == "ok");
    CHECK_MESSAGE(out.losses.back() < 0.8 * out.losses.front(), model, ": ", out.losses.front(), " to ",
                  out.losses.back());
  }
}

TEST_CASE("communicators count four exchanges of the slots of every layer, and one of the loads") {
  Job job{.model = "moe:L=2,C=16,H=4,KV=2,F=24,E=4,K=1,V=40,T=12,capacity=0.3", .dtype = DType::kF32};
  job.batch = 8, job.tokens = 12, job.steps = 1, job.gradients = false;
  for (const int n : {2, 4}) {
    const Outcome out = run(job, format("ep={}", n));
    REQUIRE(out.error == "ok");
    int64_t calls = 0, bytes = 0;
    for (const CommReport& report : out.sent)
      if (report.collective == "all_to_all") calls += report.calls, bytes += report.bytes;
    const int64_t slots = 4 * 8 * 1 * 16, loads = 4 * 8, layers = 2;
    CHECK(calls == layers * 5);
    CHECK(bytes == layers * 4 * (4 * slots + loads) * (n - 1) / n);
  }
}
