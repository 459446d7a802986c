// Option precision = tf32 through the C API: training, evaluation, generating, saved plans.
#include <cmath>
#include <string>
#include <vector>

#include "tests/capi/c_api.h"
#include "tests/capi/small_training.h"

using namespace capi_test;

namespace {

constexpr const char* kModel = "llama:L=2,C=32,H=4,KV=2,F=48,V=257,T=32";

}  // namespace

TEST_CASE("with precision tf32 a model trains and is evaluated as in f32, except for the rounding of operands") {
  const std::vector<double> exact = losses_of(kModel, "cpu:1", "f32"),
                            one = losses_of(kModel, "cpu:1", "tf32"),
                            two = losses_of(kModel, "cpu:2", "tf32");
  REQUIRE(one.size() == exact.size());
  for (size_t i = 0; i < exact.size(); ++i) {
    CAPTURE(i);
    // Operands are off by up to 2^-11 of themselves, which sums average out.
    CHECK(std::fabs(one[i] - exact[i]) < 0x1p-8 * exact[i]);
    // Sums in another order: a number of f32 now and then lies so near to a tie that it is rounded the other
    // way.
    CHECK(std::fabs(two[i] - one[i]) < 0x1p-10 * one[i]);
  }
  CHECK(one[0] != exact[0]);
  CHECK(one[20] != exact[20]);
  CHECK(one[19] < 0.8 * one[0]);
  // Beside parameters in bf16, which products read as f32.
  const std::vector<double> tf32_losses = losses_of(kModel, "cpu:1", "tf32", "bf16");
  CHECK(tf32_losses[0] != losses_of(kModel, "cpu:1", "f32", "bf16")[0]);
  CHECK(tf32_losses[19] < 0.8 * tf32_losses[0]);
}

TEST_CASE("a plan for products in tf32 is one for them alone") {
  const Runtime runtime = capi_test::runtime();
  const Model model = described(kModel);
  const Scratch scratch;
  const std::string path = scratch / "tf32.plan";
  const auto plan = [&](const char* precision, bool is_first) {
    tsr_plan* made = nullptr;
    const Error failure = take(tsr_plan_new(runtime.get(), model.get(),
                                            options({{"devices", "cpu:2"},
                                                     {"batch", 8},
                                                     {"seq", 32},
                                                     {"plan_file", is_first ? std::string() : path},
                                                     {"precision", std::string(precision)}})
                                                .get(),
                                            &made));
    const Plan owned(made);
    if (is_first) ok(tsr_plan_save(made, path.c_str()));
    return failure.message;
  };
  CHECK(plan("tf32", true) == "");
  CHECK(plan("tf32", false) == "");
  CHECK(plan("f32", false).find("make the plan again from the same model and options") != std::string::npos);
}

TEST_CASE("a model generates with precision tf32, unless no product is in f32") {
  const Runtime runtime = capi_test::runtime();
  const Model model = described(kModel);
  const auto logits = [&](const char* precision) {
    tsr_generator* made = nullptr;
    ok(tsr_generator_new(runtime.get(), model.get(),
                         options({{"precision", std::string(precision)}, {"max_tokens", 1}}).get(), &made));
    const Generator generator(made);
    std::vector<int32_t> prompt(20);
    for (size_t i = 0; i < prompt.size(); ++i) prompt[i] = static_cast<int32_t>(7 * i + 3);
    ok(tsr_generator_start_tokens(made, prompt.data(), prompt.size()));
    for (tsr_piece piece = {};;) {
      piece.struct_size = sizeof piece;
      ok(tsr_generator_next(made, -1, &piece));
      if (piece.kind == TSR_END) break;
    }
    tsr_tensor* last = nullptr;
    ok(tsr_generator_logits(made, &last));
    return floats(Tensor(last).get());
  };
  const std::vector<float> exact = logits("f32"), rounded = logits("tf32");
  REQUIRE(exact.size() == rounded.size());
  double off = 0, size = 0;
  for (size_t i = 0; i < exact.size(); ++i) {
    off += std::pow(double{exact[i]} - double{rounded[i]}, 2);
    size += std::pow(double{exact[i]}, 2);
  }
  CHECK(off > 0);
  CHECK(std::sqrt(off / size) < 0x1p-9);  // operands are off by up to 2^-11 of themselves, in a few layers
  tsr_generator* made = nullptr;
  const Error refused = take(tsr_generator_new(
      runtime.get(), model.get(), options({{"precision", "tf32"}, {"weights", "q8_0"}}).get(), &made));
  CHECK(refused.code == TSR_INVALID_ARGUMENT);
  CHECK(refused.message.find("use another precision") != std::string::npos);
}
