// Option precision = fp8 through the C API: training and evaluation in 8 bits beside f32, and what is
// refused.
#include <cmath>
#include <string>
#include <vector>

#include "tests/capi/c_api.h"
#include "tests/capi/small_training.h"

using namespace capi_test;

namespace {

tsr_status* trainer_of(const Runtime& runtime, const Model& model, const Dataset& dataset,
                       const char* precision, const char* devices, tsr_trainer** made) {
  return tsr_trainer_new(runtime.get(), model.get(), dataset.get(),
                         options({{"devices", std::string(devices)},
                                  {"batch", 8},
                                  {"steps", 20},
                                  {"lr", 3e-3},
                                  {"precision", std::string(precision)}})
                             .get(),
                         made);
}

// Losses of the steps, then of an evaluation.
std::vector<double> losses_of(const char* precision, const char* devices) {
  const Runtime runtime = capi_test::runtime();
  tsr_trainer* made = nullptr;
  ok(trainer_of(runtime, described("llama:L=2,C=32,H=4,KV=2,F=48,V=257,T=32"), bytes_dataset(), precision,
                devices, &made));
  const Trainer trainer(made);
  std::vector<double> losses;
  for (int i = 0; i < 20; ++i) {
    tsr_step step{};
    step.struct_size = sizeof step;
    ok(tsr_trainer_step(trainer.get(), &step));
    losses.push_back(step.loss);
  }
  losses.push_back(0);
  ok(tsr_trainer_evaluate(trainer.get(), &losses.back()));
  return losses;
}

}  // namespace

TEST_CASE("with precision fp8 a model trains and is evaluated as in f32, but for what 8 bits round") {
  const std::vector<double> wide = losses_of("f32", "cpu:1"), one = losses_of("fp8", "cpu:1"),
                            two = losses_of("fp8", "cpu:2");
  REQUIRE(one.size() == wide.size());
  for (size_t i = 0; i < wide.size(); ++i) {
    CAPTURE(i);
    // Numbers of 4 and 3 bits are off by up to 1/16 and 1/8, which sums average out.
    CHECK(std::fabs(one[i] - wide[i]) < 0.02 * wide[i]);
    // Sums in another order: a number of f32 in a million lies so near to a tie that it becomes another one
    // of 8 bits.
    CHECK(std::fabs(two[i] - one[i]) < 1e-3 * one[i]);
  }
  CHECK(one[0] != wide[0]);
  CHECK(one[19] < 0.8 * one[0]);
}

TEST_CASE(
    "precision fp8 without a product that it takes says what it wants, and is no precision to generate in") {
  const Runtime runtime = capi_test::runtime();
  const Dataset dataset = bytes_dataset();
  tsr_trainer* made = nullptr;
  const auto refused = take(
      trainer_of(runtime, described("gpt2:L=1,C=24,H=4,F=40,V=257,T=32"), dataset, "fp8", "cpu:1", &made));
  CHECK(refused.code == TSR_INVALID_ARGUMENT);
  CHECK(refused.message.find("multiples of 16") != std::string::npos);
  tsr_generator* generator = nullptr;
  const auto unknown = take(tsr_generator_new(runtime.get(), described("gpt2:L=1,C=32,H=4,V=257,T=32").get(),
                                              options({{"precision", "fp8"}}).get(), &generator));
  CHECK(unknown.code == TSR_INVALID_ARGUMENT);
  CHECK(unknown.message.find("bf16") != std::string::npos);
}
