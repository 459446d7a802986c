// Encoders train over devices as on one: masked tokens, and classes, in batches of texts of unequal length. All of them
// with TESSERA_TEST_FULL=1.
#include <span>
#include <string>
#include <vector>

#include "tests/capi/c_api.h"
#include "tests/capi/small_training.h"
#include "tests/full.h"

using namespace capi_test;

namespace {

constexpr int64_t kSteps = 5, kBatch = 4, kTokens = 16;

constexpr const char* kModels[] = {
    "modernbert:L=2,C=32,H=4,F=48,V=64,T=16,windows=0|5",
    "bert:L=2,C=32,H=4,F=48,V=64,T=16",
    "bert:L=2,C=32,H=4,F=48,V=64,T=16,N=4",
    "roberta:L=2,C=32,H=4,F=48,V=64,T=16",
    "distilbert:L=2,C=32,H=4,F=48,V=64,T=16,N=4",
    "nomic-bert:L=2,C=32,H=4,F=48,V=64,T=16",
};

Tensor ints(const std::vector<int32_t>& values) {
  const int64_t dims[] = {kBatch, kTokens};
  tsr_tensor* made = nullptr;
  ok(tsr_tensor_new(TSR_I32, 2, dims, &made));
  std::copy(values.begin(), values.end(), static_cast<int32_t*>(tsr_tensor_writable(made)));
  return Tensor(made);
}

// The model with its loss and segments.
Model training_model(const char* description) {
  const Model base = described(description);
  tsr_graph *forward = nullptr, *segmented = nullptr, *with_loss = nullptr;
  ok(tsr_model_graph(base.get(), &forward));
  const Graph forward_owner(forward);
  ok(tsr_graph_segments(forward, &segmented));
  const Graph segmented_owner(segmented);
  ok(tsr_graph_token_loss(segmented, &with_loss));
  const Graph loss_owner(with_loss);
  tsr_model* made = nullptr;
  ok(tsr_model_new_from_graph(with_loss, options({{"seed", 7}}).get(), &made));
  return Model(made);
}

// Losses of a few steps on one batch: every third token is masked, or each text has a class.
std::vector<double> losses_of(const Runtime& rt, const char* description, const char* devices,
                              const std::string& parallel) {
  const std::string words = description;
  const bool has_classes = words.find(",N=") != words.npos;
  const bool has_types =
      words.starts_with("bert") || words.starts_with("roberta") || words.starts_with("nomic");
  std::vector<int32_t> tokens, positions, labels, segments, types;
  for (int32_t row = 0; row < kBatch; ++row)
    for (int32_t t = 0; t < kTokens; ++t) {
      const int32_t token = (row * 11 + t * 7) % 61 + 2;
      const bool is_text = t < kTokens - 3 * row, is_masked = !has_classes && t % 3 == 1;
      tokens.push_back(!is_text ? 0 : is_masked ? 1 : token);
      positions.push_back(t);
      segments.push_back(is_text ? 1 : 0);
      types.push_back(words.starts_with("roberta") ? 0 : t % 2);
      labels.push_back(is_text && (has_classes ? t == 0 : is_masked) ? (has_classes ? row : token) : -1);
    }
  tsr_trainer* made = nullptr;
  ok(tsr_trainer_new(rt.get(), training_model(description).get(), nullptr,
                     options({{"devices", std::string(devices)},
                              {"parallel", parallel},
                              {"batch", kBatch},
                              {"seq", kTokens},
                              {"steps", kSteps},
                              {"lr", 1e-2}})
                         .get(),
                     &made));
  const Trainer trainer(made);
  ok(tsr_trainer_feed(made, "tokens", ints(tokens).get()));
  ok(tsr_trainer_feed(made, "positions", ints(positions).get()));
  ok(tsr_trainer_feed(made, "labels", ints(labels).get()));
  ok(tsr_trainer_feed(made, "segments", ints(segments).get()));
  if (has_types) ok(tsr_trainer_feed(made, "token_types", ints(types).get()));
  std::vector<double> losses;
  for (int64_t i = 0; i < kSteps; ++i) losses.push_back(one_step(trainer));
  return losses;
}

}  // namespace

TEST_CASE("encoders train on masked tokens and classes over devices as on one") {
  const Runtime rt = runtime();
  for (const char* model : std::span(kModels).first(tessera::test::full() ? std::size(kModels) : 1)) {
    INFO(model);
    const std::vector<double> alone = losses_of(rt, model, "cpu:1", "");
    CHECK(alone.back() < alone.front());
    for (const char* parallel : {"tp=2,dp=2,zero=2", "pp=2,tp=2,mb=2", "cp=ring:2,dp=2"}) {
      INFO(parallel);
      const std::vector<double> spread = losses_of(rt, model, "cpu:4", parallel);
      // Sums are taken in another order: f32 losses of a few steps agree to some 1e-5.
      for (size_t i = 0; i < alone.size(); ++i) CHECK(spread[i] == doctest::Approx(alone[i]).epsilon(2e-4));
    }
  }
}
