// Option precision = fp8 through the C API: training and evaluation in 8 bits against f32, and what is
// refused.
#include <cmath>
#include <string>
#include <vector>

#include "tests/capi/c_api.h"
#include "tests/capi/small_training.h"

using namespace capi_test;

namespace {

constexpr const char* kModel = "llama:L=2,C=32,H=4,KV=2,F=48,V=257,T=32";

}  // namespace

TEST_CASE("with precision fp8 a model trains and is evaluated as in f32, except for the rounding to 8 bits") {
  const std::vector<double> wide = losses_of(kModel, "cpu:1", "f32"), one = losses_of(kModel, "cpu:1", "fp8"),
                            two = losses_of(kModel, "cpu:2", "fp8");
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
  tsr_trainer* made = nullptr;
  const auto refused = take(tsr_trainer_new(
      runtime.get(), described("gpt2:L=1,C=24,H=4,F=40,V=257,T=32").get(), bytes_dataset().get(),
      options({{"devices", "cpu:1"}, {"batch", 8}, {"steps", 20}, {"precision", "fp8"}}).get(), &made));
  CHECK(refused.code == TSR_INVALID_ARGUMENT);
  CHECK(refused.message.find("multiples of 16") != std::string::npos);
  tsr_generator* generator = nullptr;
  const auto unknown = take(tsr_generator_new(runtime.get(), described("gpt2:L=1,C=32,H=4,V=257,T=32").get(),
                                              options({{"precision", "fp8"}}).get(), &generator));
  CHECK(unknown.code == TSR_INVALID_ARGUMENT);
  CHECK(unknown.message.find("bf16") != std::string::npos);
}
