// Optimizer settings of single steps: the bits of the same settings in the plan, AdamW's formulas in f64, and what is refused.
#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "tests/capi/step_parts.h"

namespace capi_test::step_parts {

namespace {

// Settings of the steps of AdamW. The parameters of the models here that are matrices decay.
struct AdamwSettings {
  double lr = 0.01, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0.01, clip_norm = 1;

  std::vector<Setting> words() const {
    return {{"lr", lr},
            {"beta1", beta1},
            {"beta2", beta2},
            {"eps", eps},
            {"weight_decay", weight_decay},
            {"clip_norm", clip_norm}};
  }
};

}  // namespace

TEST_CASE("settings of a step that equal the trainer's own give its bits, on any devices") {
  const Rows rows(4);
  const AdamwSettings own{
      .lr = 0.02, .beta1 = 0.85, .beta2 = 0.97, .eps = 1e-6, .weight_decay = 0.2, .clip_norm = 0.5};
  for (const Layout& layout : {Layout{}, Layout{"cpu:2", "dp=2,zero=2"}, Layout{"cpu:2", "pp=2"}}) {
    INFO(layout.parallel);
    Parts planned(layout, 4, "cross_entropy", "f32", "off", own.words()), given(layout);
    for (int i = 0; i < 2; ++i) {
      planned.accumulate(rows, "cross_entropy", scale_of(rows));
      given.accumulate(rows, "cross_entropy", scale_of(rows));
      planned.update();
      given.update(own.words());
    }
    for (const char* name : kSome) CHECK(planned.read(name) == given.read(name));
    if (!layout.parallel.empty()) continue;
    Parts whole(layout, 4, "cross_entropy", "f32", "off", own.words());  // the plan holds the settings
    for (int i = 0; i < 2; ++i) whole.whole(rows);
    for (const char* name : kSome) CHECK(whole.read(name) == given.read(name));
  }
}

TEST_CASE("each step has the settings that it is given, by the formulas of AdamW in f64") {
  const AdamwSettings steps[] = {
      {.lr = 0.01, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-12, .weight_decay = 0, .clip_norm = 0},
      {.lr = 0.03, .beta1 = 0.5, .beta2 = 0.99, .eps = 1e-3, .weight_decay = 0.5, .clip_norm = 0.1},
      {.lr = 0.02, .beta1 = 0, .beta2 = 0.9, .eps = 1e-8, .weight_decay = 0.1, .clip_norm = 100},
  };
  const Rows rows(4);
  for (const char* name : {"block.0.q", "block.1.down", "block.0.attention_norm"}) {
    const bool decays = std::string(name).find("norm") == std::string::npos;
    INFO(name);
    Parts trainer;
    const std::vector<float> begin = trainer.read(name);
    std::vector<double> p(begin.begin(), begin.end()), m(p.size()), v(p.size());
    int step = 0;
    for (const AdamwSettings& s : steps) {
      trainer.accumulate(rows, "cross_entropy", scale_of(rows));
      const std::vector<float> gradient = trainer.read((std::string(name) + ".grad").c_str());
      const double norm = trainer.update(s.words()).grad_norm;
      const double clip = s.clip_norm == 0 ? 1 : std::min(1.0, s.clip_norm / (norm + 1e-6));
      ++step;
      for (size_t i = 0; i < p.size(); ++i) {
        const double g = clip * gradient[i];
        m[i] = s.beta1 * m[i] + (1 - s.beta1) * g;
        v[i] = s.beta2 * v[i] + (1 - s.beta2) * g * g;
        const double mean = m[i] / (1 - std::pow(s.beta1, step)),
                     square = v[i] / (1 - std::pow(s.beta2, step));
        p[i] -= s.lr * (mean / (std::sqrt(square) + s.eps) + (decays ? s.weight_decay : 0) * p[i]);
      }
      const std::vector<float> found = trainer.read(name);
      double largest = 0;
      for (size_t i = 0; i < p.size(); ++i) largest = std::max(largest, std::fabs(p[i] - found[i]));
      CHECK(largest < 1e-6);  // f32 steps of at most 0.03, and parameters of about 0.1
    }
  }
}

TEST_CASE("settings that a step cannot have are refused with the value and what is wanted") {
  Parts parts;
  const Rows rows(4);
  parts.accumulate(rows, "cross_entropy", scale_of(rows));
  const std::vector<float> before = parts.read(kSome[0]);
  const auto refused = [](const Parts& on, const char* name, double value, const char* part) {
    const Error error =
        take(tsr_trainer_optimizer_step(on.trainer.get(), options({{name, value}}).get(), nullptr));
    INFO(error.message);
    CHECK(error.code == TSR_INVALID_ARGUMENT);
    CHECK(error.message.find(part) != std::string::npos);
  };
  refused(parts, "beta1", 1, "'beta1' is 1, wanted between 0 and 0.9999999999999999");
  refused(parts, "beta2", NAN, "'beta2' is nan, wanted between 0");
  refused(parts, "beta2", -0.1, "'beta2' is -0.1, wanted between 0");
  refused(parts, "eps", -1e-9, "'eps' is -1e-09, wanted between 0 and 1");
  refused(parts, "weight_decay", -1, "'weight_decay' is -1");
  refused(parts, "clip_norm", NAN, "'clip_norm' is nan");
  refused(parts, "lr", INFINITY, "'lr' is inf");
  refused(parts, "momentum", 0.5, "momentum");
  CHECK(parts.read(kSome[0]) == before);
  CHECK(parts.update().step == 1);  // the gradients still wait
  Parts muon({}, 4, "cross_entropy", "f32", "off", {{"optimizer", std::string("muon")}});
  muon.accumulate(rows, "cross_entropy", scale_of(rows));
  refused(muon, "beta1", 0.5, "is fixed when the trainer is made: wanted lr and clip_norm");
  CHECK(muon.update({{"clip_norm", 0.1}}).step == 1);
}

}  // namespace capi_test::step_parts
