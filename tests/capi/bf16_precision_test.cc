// Option precision = bf16 on CPU devices through the C API: training, evaluation, generating and scoring against f32,
// and on several devices against one.
#include <cmath>
#include <string>
#include <vector>

#include "tests/capi/c_api.h"
#include "tests/capi/small_training.h"

using namespace capi_test;

namespace {

constexpr const char* kModel = "llama:L=2,C=32,H=4,KV=2,F=48,V=257,T=32";

// Numbers of bf16 are off by up to 2^-9 of themselves, once for each of a dozen results a layer, which sums average
// out.
constexpr double kRounding = 0x1p-6;

Error resumed_with(const char* precision, const std::string& folder, double* loss) {
  const Runtime runtime = capi_test::runtime();
  tsr_trainer* made = nullptr;
  ok(tsr_trainer_new(runtime.get(), described(kModel).get(), bytes_dataset().get(),
                     options({{"batch", 8}, {"steps", 20}, {"precision", std::string(precision)}}).get(), &made));
  const Trainer trainer(made);
  const Error failure = take(tsr_trainer_resume(made, folder.c_str()));
  if (failure.message.empty()) *loss = one_step(trainer);
  return failure;
}

std::vector<int32_t> prompt_tokens() {
  std::vector<int32_t> prompt(20);
  for (size_t i = 0; i < prompt.size(); ++i) prompt[i] = static_cast<int32_t>(7 * i + 3);
  return prompt;
}

// The logits after a prompt and one token more, so that the caches are read by one row too.
std::vector<float> logits(const Model& model, std::initializer_list<Setting> settings) {
  const Runtime runtime = capi_test::runtime();
  tsr_generator* made = nullptr;
  ok(tsr_generator_new(runtime.get(), model.get(), options(settings).get(), &made));
  const Generator generator(made);
  const std::vector<int32_t> prompt = prompt_tokens();
  ok(tsr_generator_start_tokens(made, prompt.data(), prompt.size()));
  for (tsr_piece piece = {};;) {
    piece.struct_size = sizeof piece;
    ok(tsr_generator_next(made, -1, &piece));
    if (piece.kind == TSR_END) break;
  }
  tsr_tensor* last = nullptr;
  ok(tsr_generator_logits(made, &last));
  return floats(Tensor(last).get());
}

// Root mean square of the difference, as a share of that of `want`.
double relative_error(const std::vector<float>& got, const std::vector<float>& want) {
  REQUIRE(got.size() == want.size());
  double off = 0, size = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    off += std::pow(double{got[i]} - double{want[i]}, 2);
    size += std::pow(double{want[i]}, 2);
  }
  return std::sqrt(off / size);
}

}  // namespace

TEST_CASE("with precision bf16 a model trains and is evaluated on CPUs as in f32, except for the rounding to bf16") {
  for (const char* model : {kModel, "gpt2:L=2,C=32,H=4,V=257,T=32", "moe:L=1,C=32,H=4,KV=2,F=20,E=4,K=2,V=257,T=32"}) {
    CAPTURE(std::string(model));
    const std::vector<double> f32_loss = losses_of(model, "cpu:1", "f32"), one = losses_of(model, "cpu:1", "bf16");
    REQUIRE(one.size() == f32_loss.size());
    for (size_t i = 0; i < f32_loss.size(); ++i) {
      CAPTURE(i);
      CHECK(std::fabs(one[i] - f32_loss[i]) < kRounding * f32_loss[i]);
    }
    CHECK(one != f32_loss);
    CHECK(one[19] < 0.8 * one[0]);
  }
}

TEST_CASE("training in bf16 on several CPU devices is that on one, except for the order of sums") {
  const std::vector<double> one = losses_of(kModel, "cpu:1", "bf16"), two = losses_of(kModel, "cpu:2", "bf16");
  for (size_t i = 0; i < one.size(); ++i) {
    CAPTURE(i);
    CHECK(std::fabs(two[i] - one[i]) < 0x1p-8 * one[i]);
  }
  CHECK(losses_of(kModel, "cpu:1", "bf16") == one);  // the same bits twice
  // Parameters in bf16 as well.
  CHECK(losses_of(kModel, "cpu:1", "bf16", "bf16")[19] < 0.8 * one[0]);
}

TEST_CASE("training in bf16 goes on from a checkpoint of f32, and the other way round") {
  const Scratch scratch;
  const std::string folder = scratch / "checkpoint";
  {
    const Runtime runtime = capi_test::runtime();
    tsr_trainer* made = nullptr;
    ok(tsr_trainer_new(runtime.get(), described(kModel).get(), bytes_dataset().get(),
                       options({{"batch", 8}, {"steps", 20}, {"precision", "bf16"}}).get(), &made));
    const Trainer trainer(made);
    for (int i = 0; i < 3; ++i) one_step(trainer);
    ok(tsr_trainer_save(made, folder.c_str()));
  }
  double bf16_loss = 0, f32_loss = 0;
  CHECK(resumed_with("bf16", folder, &bf16_loss).message == "");
  CHECK(resumed_with("f32", folder, &f32_loss).message == "");
  CHECK(std::fabs(bf16_loss - f32_loss) < kRounding * f32_loss);
}

TEST_CASE("a model generates in bf16 on CPUs near what it does in f32, on one device and on two") {
  for (const char* description : {kModel, "gpt2:L=2,C=32,H=4,V=257,T=32"}) {
    CAPTURE(std::string(description));
    const Model model = described(description);
    const std::vector<float> exact = logits(model, {{"temperature", 0.0}, {"max_tokens", 2}}),
                             one = logits(model, {{"temperature", 0.0}, {"max_tokens", 2}, {"precision", "bf16"}}),
                             two = logits(model, {{"temperature", 0.0},
                                                  {"max_tokens", 2},
                                                  {"precision", "bf16"},
                                                  {"devices", "cpu:2"},
                                                  {"parallel", "tp=2"}});
    const double error = relative_error(one, exact);
    CHECK(error > 0);
    CHECK(error < kRounding);
    CHECK(relative_error(two, one) < kRounding);
    // The same bits twice.
    CHECK(relative_error(logits(model, {{"temperature", 0.0}, {"max_tokens", 2}, {"precision", "bf16"}}), one) == 0);
  }
}
