// Option weights = bf16 of trainers: parameters in two bytes, the same bits for any plan that leaves the
// gradients alone and after a resume, a loss near that of f32 where rounding to nearest stands still.
#include <bit>
#include <cmath>
#include <cstdlib>
#include <string>
#include <vector>

#include "tests/capi/c_api.h"
#include "tests/capi/small_training.h"

using namespace capi_test;

namespace {

constexpr const char* kModel = "llama:L=2,C=32,H=4,KV=2,F=48,V=256,T=32";

Dataset tiny_text() {
  return repeated_text("the cat sat on the mat and the dog sat on the log. ", 60, 16, 0.1);
}

struct Choice {
  std::string weights = "bf16", devices = "cpu:1", parallel = "", optimizer = "adamw";
  double lr = 3e-3;
  int64_t seed = 5, evaluate_only = 0;
};

class Training {
 public:
  explicit Training(const Choice& choice = {}) : model(described(kModel, 3)), data_(tiny_text()) {
    tsr_trainer* made = nullptr;
    ok(tsr_trainer_new(runtime_.get(), model.get(), data_.get(), settings(choice).get(), &made));
    trainer_.reset(made);
  }
  static Options settings(const Choice& choice) {
    return options({{"batch", int64_t{8}},
                    {"weights", choice.weights},
                    {"devices", choice.devices},
                    {"parallel", choice.parallel},
                    {"optimizer", choice.optimizer},
                    {"lr", choice.lr},
                    {"warmup", int64_t{0}},
                    {"seed", choice.seed},
                    {"evaluate_only", choice.evaluate_only}});
  }
  double step() { return one_step(trainer_); }
  double steps(int count) {
    double loss = 0;
    for (int i = 0; i < count; ++i) loss = step();
    return loss;
  }
  double evaluate() { return evaluated(trainer_); }
  Tensor read(const std::string& name) const {
    tsr_tensor* value = nullptr;
    ok(tsr_trainer_read(trainer_.get(), name.c_str(), &value));
    return Tensor(value);
  }
  // Values of all parameters, one after the other.
  std::vector<uint16_t> bits() const {
    std::vector<uint16_t> all;
    for (const std::string& name : names()) {
      const Tensor value = read(name);
      REQUIRE(tsr_tensor_dtype(value.get()) == TSR_BF16);
      const auto* data = static_cast<const uint16_t*>(tsr_tensor_data(value.get()));
      all.insert(all.end(), data, data + tsr_tensor_bytes(value.get()) / sizeof(uint16_t));
    }
    return all;
  }
  // Values of an f32 trainer: every parameter rounded to bf16, to nearest.
  void round_to_nearest() {
    for (const std::string& name : names()) {
      const Tensor value = read(name);
      std::vector<float> rounded = floats(value.get());
      for (float& each : rounded) {
        const auto bits = std::bit_cast<uint32_t>(each);
        each = std::bit_cast<float>((bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000u);
      }
      const int64_t* dims = tsr_tensor_dims(value.get());
      const std::vector<int64_t> shape(dims, dims + tsr_tensor_rank(value.get()));
      ok(tsr_trainer_write(trainer_.get(), name.c_str(), tensor_f32(shape, rounded).get()));
    }
  }
  std::vector<std::string> names() const {
    size_t count = 0;
    ok(tsr_model_parameter_count(model.get(), &count));
    std::vector<std::string> all;
    for (size_t i = 0; i < count; ++i)
      all.push_back(
          short_text([&](auto... out) { return tsr_model_parameter_name(model.get(), i, out...); }));
    return all;
  }
  double report_number(const char* first, const char* then) const {
    const std::string report = text([&](auto... out) { return tsr_trainer_report(trainer_.get(), out...); });
    const size_t at = report.find(then, report.find(first));
    REQUIRE(at != std::string::npos);
    return std::stod(report.substr(report.find(':', at) + 1));
  }
  tsr_trainer* get() const { return trainer_.get(); }

  Model model;

 private:
  Runtime runtime_ = runtime();
  Dataset data_;
  Trainer trainer_;
};

}  // namespace

TEST_CASE("bf16 weights are the same bits twice, and for every way to spread them") {
  const auto trained = [](const char* devices, const char* parallel, const char* optimizer = "adamw") {
    Training training({.devices = devices, .parallel = parallel, .optimizer = optimizer});
    training.steps(4);
    CHECK(training.report_number("\"arena_bytes\"", "\"measured\"") ==
          training.report_number("\"arena_bytes\"", "\"predicted\""));
    return training.bits();
  };
  const std::vector<uint16_t> one = trained("cpu:1", "dp=1");
  CHECK(trained("cpu:1", "dp=1") == one);
  for (const char* optimizer : {"adamw", "sgd"}) {
    const std::vector<uint16_t> whole = trained("cpu:2", "dp=2", optimizer);
    for (const char* words : {"dp=2,zero=1", "dp=2,zero=2", "dp=2,zero=3", "dp=2,zero=3,recompute=full"}) {
      CAPTURE(words);
      CHECK(trained("cpu:2", words, optimizer) == whole);
    }
  }
  // Gradients that are summed in another order differ in their last bits, which now and then moves a value
  // past the bits that round it: by one number of bf16.
  for (const char* words : {"tp=2", "pp=2", "dp=2"}) {
    CAPTURE(words);
    const std::vector<uint16_t> other = trained("cpu:2", words);
    REQUIRE(other.size() == one.size());
    size_t far = 0, different = 0;
    for (size_t i = 0; i < one.size(); ++i) {
      different += one[i] != other[i];
      far += std::abs(int{one[i]} - int{other[i]}) > 8;  // a few steps apart after four of them
    }
    CHECK(different < one.size() / 20);
    CHECK(far < one.size() / 1000);
  }
}

TEST_CASE("bf16 weights learn as f32 ones do where rounding to nearest stands still") {
  // AdamW's steps of 1e-5 are less than half of what lies between two numbers of bf16 from 0.004 on, which is
  // less than most weights are.
  const auto choice = [](const char* weights) { return Choice{.weights = weights, .lr = 1e-5}; };
  Training wide(choice("model")), bf16_training(choice("bf16")), nearest(choice("model"));
  const double before = wide.evaluate();
  wide.steps(600);
  bf16_training.steps(600);
  for (int i = 0; i < 600; ++i) {
    nearest.round_to_nearest();
    nearest.step();
  }
  nearest.round_to_nearest();
  const double learned = before - wide.evaluate();
  MESSAGE("f32 learns ", learned, ", bf16 ", before - bf16_training.evaluate(), ", to nearest ",
          before - nearest.evaluate());
  CHECK(learned > 0.2);
  CHECK(std::abs(bf16_training.evaluate() - wide.evaluate()) < 0.1 * learned);
  CHECK(before - nearest.evaluate() < 0.3 * learned);
}

TEST_CASE("training in bf16 goes on from a checkpoint with the same bits") {
  const Scratch scratch;
  const std::string folder = scratch / "checkpoint";
  Training whole;
  whole.steps(3);
  ok(tsr_trainer_save(whole.get(), folder.c_str()));
  whole.steps(3);
  Training resumed;
  ok(tsr_trainer_resume(resumed.get(), folder.c_str()));
  resumed.steps(3);
  CHECK(resumed.bits() == whole.bits());
  Training other({.seed = 6});
  ok(tsr_trainer_resume(other.get(), folder.c_str()));
  other.steps(3);
  CHECK(other.bits() != whole.bits());  // other random bits

  // f32 neither begins there nor the other way round, but is evaluated with what was trained.
  Training wide({.weights = "model"});
  const Error refused = take(tsr_trainer_resume(wide.get(), folder.c_str()));
  CHECK(refused.code == TSR_INVALID_ARGUMENT);
  CHECK(refused.message.find("option 'weights'") != std::string::npos);
  Training evaluated({.weights = "model", .evaluate_only = 1}), here({.evaluate_only = 1});
  ok(tsr_trainer_resume(evaluated.get(), folder.c_str()));
  ok(tsr_trainer_resume(here.get(), folder.c_str()));
  CHECK(evaluated.evaluate() == here.evaluate());
}

TEST_CASE("what was trained in bf16 is stored in the type that the model has") {
  Training training;
  training.steps(2);
  ok(tsr_trainer_store(training.get(), training.model.get()));
  tsr_tensor* value = nullptr;
  ok(tsr_model_read(training.model.get(), "token_embedding", &value));
  const Tensor stored(value), kept = training.read("token_embedding");
  REQUIRE(tsr_tensor_dtype(stored.get()) == TSR_F32);
  const std::vector<float> wide = floats(stored.get());
  const auto* bf16_values = static_cast<const uint16_t*>(tsr_tensor_data(kept.get()));
  for (size_t i = 0; i < wide.size(); ++i)
    CHECK(std::bit_cast<uint32_t>(wide[i]) == uint32_t{bf16_values[i]} << 16);
}

TEST_CASE("bf16 weights make the arena smaller, to the byte as planned") {
  const auto parameter_bytes = [](const char* weights) {
    Training training({.weights = weights, .parallel = "dp=1"});
    training.steps(2);
    const double predicted = training.report_number("\"arena_bytes\"", "\"predicted\"");
    CHECK(training.report_number("\"arena_bytes\"", "\"measured\"") == predicted);
    return predicted;
  };
  MESSAGE("arena of f32 ", parameter_bytes("model"), ", of bf16 ", parameter_bytes("bf16"));
  CHECK(parameter_bytes("bf16") < parameter_bytes("model"));
}

TEST_CASE("bf16 weights are refused with f16, and other types of weights altogether") {
  const Runtime rt = runtime();
  const Model model = described(kModel, 3);
  const Dataset data = tiny_text();
  tsr_trainer* made = nullptr;
  Error error = take(tsr_trainer_new(rt.get(), model.get(), data.get(),
                                     options({{"weights", "bf16"}, {"precision", "f16"}}).get(), &made));
  CHECK(error.code == TSR_INVALID_ARGUMENT);
  CHECK(error.message.find("wanted precision bf16 or f32") != std::string::npos);
  error =
      take(tsr_trainer_new(rt.get(), model.get(), data.get(), options({{"weights", "q8_0"}}).get(), &made));
  CHECK(error.code == TSR_INVALID_ARGUMENT);
  CHECK(made == nullptr);
}
