// Bytes that lowered programs send, against the formulas and fixtures of the sharding algebra.
#include "tests/parallel/volumes.h"

#include <doctest/doctest.h>

#include <algorithm>

#include "graph/base/text.h"
#include "tests/parallel/step_graphs.h"

using namespace tessera;

namespace {

constexpr std::string_view kStories = "llama:L=5,C=64,H=8,KV=4,F=172,V=512,T=64";
constexpr int64_t kBatch = 12, kTokens = 16, kLayers = 5, kChannels = 64;

struct Counted {
  std::string error;
  double elements = 0;
  std::map<std::string, Sent> by_kind;
};

Counted count(std::string_view model, std::string_view parallel, int64_t batch, int64_t tokens,
              bool tied = true) {
  const auto step = training_step(model, tied);
  if (!step.ok()) return {step.status().to_string(), 0, {}};
  const auto program = program_of(*step, parallel, batch, tokens);
  if (!program.ok()) return {program.status().to_string(), 0, {}};
  auto sent = count_sent(*program);
  return {"", total_bytes(sent) / 4, std::move(sent)};
}

double stories(std::string_view parallel) {
  const Counted counted = count(kStories, parallel, kBatch, kTokens);
  CHECK(counted.error == "");
  return counted.elements;
}

double stories_parameters() { return static_cast<double>(parameter_elements(*training_step(kStories))); }

constexpr double kS = kBatch * kTokens * kChannels, kRows = kBatch * kTokens;

}  // namespace

TEST_CASE("data parallel sends every gradient once around the ring, and the loss") {
  for (const int n : {2, 3, 4})
    CHECK(stories(format("dp={}", n)) == doctest::Approx(2 * (n - 1) * (stories_parameters() + 1)));
}

TEST_CASE("zero levels send what the algebra says, in units of (N-1) parameters") {
  const double psi = stories_parameters();
  const double n = 3, m = 4;           // the fixture: Adam, N=3, m=4 micro-batches
  const double scalars = 2 * (n - 1);  // the loss
  const double norm = 2 * (n - 1);     // the square of the gradient norm, when gradients are spread
  CHECK(stories("dp=3,mb=1") == doctest::Approx((n - 1) * 2 * psi + scalars));
  CHECK(stories("dp=3,zero=1,mb=1") == doctest::Approx((n - 1) * 2 * psi + scalars + norm));
  CHECK(stories("dp=3,zero=2,mb=1") == doctest::Approx((n - 1) * (m + 1) * psi + scalars + norm));
  CHECK(stories("dp=3,zero=3,mb=1") == doctest::Approx((n - 1) * 3 * m * psi + scalars + norm));
}

TEST_CASE("hybrid sharding gathers inside groups and reduces shards between them") {
  const double psi = stories_parameters(), r = 2, d = 2;
  const double scalars = 2 * 3 /* loss, over all four */ + r * 2 * (d - 1) /* gradient norm, in each group */;
  CHECK(stories("dp=4,zero=3:2") == doctest::Approx(r * 3 * (d - 1) * psi + 2 * (r - 1) * psi + scalars));
}

TEST_CASE(
    "tensor parallel reduces two activations a layer each way, one for each end, and three statistics") {
  for (const int p : {2, 3, 4})
    CHECK(stories(format("tp={}", p)) ==
          doctest::Approx(2 * (p - 1) * ((4 * kLayers + 2) * kS + 3 * kRows + 1)));
}

TEST_CASE("the block of the algebra's fixture sends 19008 elements on two devices") {
  const Counted counted = count("llama:L=1,C=16,H=4,KV=2,F=24,V=40,T=12", "tp=2", 8, 12);
  CHECK(counted.error == "");
  CHECK(counted.elements - 2 /* gradient norm */ == doctest::Approx(19008));
}

TEST_CASE("more parts than KV heads spread the queries of a head, and sum the gradients of its keys once") {
  const Counted counted = count("llama:L=1,C=16,H=4,KV=2,F=24,V=40,T=12", "tp=4", 8, 12);
  CHECK(counted.error == "");
  CHECK(counted.elements - 6 /* gradient norm */ == doctest::Approx(57536));
}

TEST_CASE(
    "sequence parallel halves every reduction and gathers again in backward what it gathered in forward") {
  const double p = 4, norms = (2 * kLayers + 1) * kChannels;  // gradients of norm weights are summed over tp
  const double gathers = 3 * (2 * kLayers + 1), scatters = 4 * kLayers + 2;
  const Counted counted = count(kStories, "tp=4,sp", kBatch, kTokens);
  CHECK(counted.error == "");
  CHECK(counted.elements ==
        doctest::Approx((p - 1) * ((gathers + scatters) * kS + 2 * (norms + 3 * kRows + 1))));
  CHECK(counted.by_kind.at("all_gather tp").calls == gathers);
  CHECK(counted.by_kind.at("reduce_scatter tp").calls == scatters);
}

TEST_CASE("data and tensor parallel together send each on its own axis") {
  const Counted counted = count(kStories, "dp=2,tp=2", kBatch, kTokens);
  CHECK(counted.error == "");
  const double psi = stories_parameters(), norms = (2 * kLayers + 1) * kChannels;
  // Every rank holds half of what tp splits and all of the norm weights; two tp positions reduce over dp.
  CHECK(counted.by_kind.at("all_reduce dp").bytes / 4 ==
        doctest::Approx(2 * 2 * ((psi - norms) / 2 + norms + 1)));
  CHECK(counted.by_kind.at("all_reduce tp").bytes / 4 ==
        doctest::Approx(2 * 2 * ((4 * kLayers + 2) * kS / 2 + 3 * kRows / 2 + 1)));
}

TEST_CASE("one device sends nothing") { CHECK(stories("single") == 0); }

TEST_CASE("shards of uneven sizes send the same totals") {
  const Counted even = count(kStories, "tp=2", 5, kTokens), odd = count(kStories, "tp=3", 5, kTokens);
  CHECK(odd.elements == doctest::Approx(2 * even.elements));
  CHECK(count(kStories, "dp=3", 5, kTokens).elements == doctest::Approx(4 * (stories_parameters() + 1)));
}

// The algebra's fixture: E * G * cap * C = 512 slots of values, 8 sequences (the groups), of 12 tokens each.
TEST_CASE("experts move whole slots four times: there and back, forward and backward") {
  constexpr std::string_view kExperts = "moe:L=1,C=16,H=4,KV=2,F=24,E=4,K=1,V=40,T=12,capacity=0.3";
  for (const int n : {2, 4}) {
    const Counted counted = count(kExperts, format("ep={}", n), 8, 12);
    CHECK(counted.error == "");
    const double slots = 4.0 * 8 * 1 * 16, loads = 4.0 * 8, share = (n - 1.0) / n;
    const Sent exchanged = counted.by_kind.at("all_to_all ep");
    CHECK(exchanged.calls == 5);  // with the loads, once
    CHECK(exchanged.bytes / 4 == doctest::Approx(share * (4 * slots + loads)));
    CHECK(4 * share * slots == (n == 2 ? 1024 : 1536));
    // Everything else takes ep as data parallel: the gradients of all that experts do not own, and the loss.
    const Graph step = *training_step(kExperts);
    double shared = 0;
    for (const TensorId id : step.tensors_of_kind(TensorKind::kParameter))
      if (step.tensor(id).name.find(".experts.") == std::string::npos)
        shared += static_cast<double>(step.type(id).shape.elements());
    CHECK(counted.elements == doctest::Approx(share * (4 * slots + loads) + 2 * (n - 1) * (shared + 2)));
  }
}

TEST_CASE("more ranks than experts are refused with the number that fits") {
  const Counted counted = count("moe:L=1,C=16,H=4,KV=2,F=24,E=4,K=1,V=40,T=12", "ep=6", 12, 12);
  CHECK(counted.error.find("ep=6 does not fit 'block.0.experts.gate'") != std::string::npos);
  CHECK(counted.error.find("ep=4") != std::string::npos);
}

// Slots are E * S > T rows a sequence: what is summed up there, or gathered there, is gathered and summed up
// before and after instead, where it is tokens.
TEST_CASE("experts under tensor parallelism send what a dense block does, and what the router needs") {
  constexpr std::string_view kDense = "llama:L=1,C=16,H=4,KV=2,F=24,V=40,T=12",
                             kExperts = "moe:L=1,C=16,H=4,KV=2,F=24,E=4,K=2,V=40,T=12,capacity=1,aux=0";
  const double logits = 8 * 12 * 4, gates = 8 * 12 * 2, router = 4 * 16;
  const Counted dense = count(kDense, "tp=2", 8, 12), experts = count(kExperts, "tp=2", 8, 12);
  CHECK(experts.error == "");
  CHECK(experts.elements == doctest::Approx(dense.elements + logits + 2 * gates));

  const Counted split = count(kExperts, "tp=2,sp", 8, 12), dense_split = count(kDense, "tp=2,sp", 8, 12);
  CHECK(split.error == "");
  CHECK(split.elements < dense_split.elements + 4 * logits + 4 * gates + 2 * router);
}

TEST_CASE("experts share out their slots over the ranks of a split sequence") {
  constexpr std::string_view kExperts = "moe:L=1,C=16,H=4,KV=2,F=24,E=4,K=2,V=40,T=12,capacity=1";
  for (const char* words : {"cp=ring:2", "cp=ulysses:2", "cp=gather:2,ep=2"}) {
    const Graph step = *training_step(kExperts);
    const auto plan = plan_of(step, words, 8, 12);
    REQUIRE_MESSAGE(plan.ok(), plan.status().to_string());
    CHECK(program_of(step, words, 8, 12).ok());
    const AxisId cp = *plan->stages[0].mesh.find_axis("cp");
    for (size_t n = 0; n < step.nodes().size(); ++n) {
      if (!step.nodes()[n].op->name.starts_with("expert_matmul")) continue;
      const auto& axes = plan->nodes[n].factor_axes;
      const auto slots = std::ranges::find(axes, 's', [](const auto& entry) { return entry.first; });
      REQUIRE(slots != axes.end());
      CHECK(slots->second == std::vector<AxisId>{cp});
    }
  }
}
