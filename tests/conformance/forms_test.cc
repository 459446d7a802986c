// Every form of parallelism on every model, in f64 and f32, against one device. Test suites are ctest
// entries.
#include <doctest/doctest.h>

#include <cstdio>

#include "graph/base/text.h"
#include "tests/conformance/parity_forms.h"
#include "tests/conformance/parity_harness.h"

using namespace tessera;
using namespace tessera::parity;

namespace {

// The same widths in every depth: 8 heads and odd extents elsewhere, so that most cuts are uneven.
std::string model_for(std::string_view family, Needs needs) {
  const int layers = needs == Needs::kManyLayers ? 8 : needs == Needs::kLayers ? 4 : 2;
  if (family == "llama") return format("llama:L={},C=32,H=8,KV=4,F=52,V=61,T=16,tied=0", layers);
  if (family == "moe") return format("moe:L={},C=32,H=8,KV=4,F=28,E=4,K=2,V=61,T=16", layers);
  return format("{}:L={},C=32,H=8,V=61,T=16", family, layers);
}

void check_forms(std::string_view family, DType dtype) {
  print_header();
  for (const Form& form : forms()) {
    if (!form.always && !full()) continue;
    if (form.needs == Needs::kExperts && family != "moe") continue;
    Job job{.model = model_for(family, form.needs), .dtype = dtype};
    Row row = measure(job, form.words);
    row.devices = form.devices;
    check(row);
  }
}

}  // namespace

#define TESSERA_FORMS(suite, family)                                       \
  TEST_SUITE("parity " suite) {                                            \
    TEST_CASE("every form trains " family " as one device does, in f64") { \
      check_forms(family, DType::kF64);                                    \
    }                                                                      \
    TEST_CASE("every form trains " family " as one device does, in f32") { \
      check_forms(family, DType::kF32);                                    \
    }                                                                      \
  }

TESSERA_FORMS("gpt2", "gpt2")
TESSERA_FORMS("llama", "llama")
TESSERA_FORMS("encoder", "encoder")
TESSERA_FORMS("moe", "moe")

TEST_CASE("words that do not fit are refused with the nearest that do") {
  for (const Refusal& refusal : refusals()) {
    CAPTURE(refusal.words);
    const Outcome out = run({.model = std::string(refusal.model), .steps = 1}, refusal.words);
    CHECK(!out.ok());
    CHECK_MESSAGE(out.error.find(refusal.names) != std::string::npos, out.error);
    std::printf("refused | %s | %s\n", refusal.words.c_str(), out.error.c_str());
  }
}

TEST_CASE("the harness sees a learning rate that is off by one part in ten million") {
  const Job job{.model = model_for("gpt2", Needs::kNothing)};
  const Outcome& single = on_one_device(job);
  REQUIRE(single.error == "ok");
  CHECK(single.losses.back() < single.losses.front());
  Job other = job;
  other.lr *= 1 + 1e-7;
  CHECK(deviation(job, single, run(other, "dp=2")).weights > tolerance(DType::kF64));
  CHECK(deviation(job, single, run(job, "dp=2")).weights <= tolerance(DType::kF64));
}

TEST_CASE("the harness sees a gradient that is lost and one that is counted twice") {
  const Job job{.model = model_for("llama", Needs::kNothing)};
  const Outcome& single = on_one_device(job);
  REQUIRE(single.error == "ok");
  for (const double factor : {0.0, 2.0}) {
    Outcome other = single;
    for (double& value : other.gradients.at("block.1.ffn_norm")) value *= factor;
    CHECK(deviation(job, single, other).gradient > 1e-3);
  }
}
