// Inputs that the caller feeds: labels and loss scale of one's own, values that no step may take, errors by name.
#include <algorithm>
#include <limits>

#include "fed_training.h"
#include "small_training.h"

using namespace capi_test;

TEST_CASE("a step whose loss is not finite is refused and changes nothing, though its gradient is finite") {
  const Runtime rt = runtime();
  // The loss has an addend that no weight reaches.
  static constexpr const char* kText = R"(graph {
  symbol B
  input x: f32[B, 8]
  input extra: f32[B, 8]
  parameter w: f32[8, 4]
  o = matmul(x, w) : f32[B, 4]
  fit = reduce_mean(o) {axes = [0, 1]} : f32[]
  rest = reduce_mean(extra) {axes = [0, 1]} : f32[]
  loss = add(fit, rest) : f32[]
  output loss = loss
})";
  tsr_graph* graph = nullptr;
  ok(tsr_graph_parse(kText, TSR_TEXT_END, &graph));
  const Graph owner(graph);
  tsr_model* model_raw = nullptr;
  ok(tsr_model_new_from_graph(graph, nullptr, &model_raw));
  const Model model(model_raw);
  struct Form {
    const char *devices, *parallel, *optimizer;
  };
  for (const auto& [devices, parallel, optimizer] :
       {Form{"cpu:1", "", "adamw"}, Form{"cpu:1", "mb=2", "sgd"}, Form{"cpu:2", "dp=2", "adamw"},
        Form{"cpu:2", "dp=2,zero=2,mb=2", "adamw"}}) {
    CAPTURE(parallel);
    const Trainer trainer = mlp_trainer(rt, model,
                                        {{"devices", std::string(devices)},
                                         {"parallel", std::string(parallel)},
                                         {"optimizer", std::string(optimizer)}});
    const auto feed_extra = [&](float last) {
      std::vector<float> values(64, 1.0f);
      values.back() = last;
      ok(tsr_trainer_feed(trainer.get(), "x", tensor_f32({8, 8}, noise(64, 1)).get()));
      ok(tsr_trainer_feed(trainer.get(), "extra", tensor_f32({8, 8}, values).get()));
    };
    feed_extra(1);
    const double grad_norm = step(trainer).grad_norm;
    CHECK(grad_norm > 0);
    const char* state = std::string(optimizer) == "sgd" ? "w.momentum" : "w.m";
    const std::vector<float> w = parameter(trainer, "w"), m = parameter(trainer, state);
    for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
      feed_extra(bad);
      const Error error = take(tsr_trainer_step(trainer.get(), nullptr));
      CHECK(error.code == TSR_NOT_FINITE);
      CHECK(error.message.find("step 2") != std::string::npos);
      CHECK(parameter(trainer, "w") == w);
      CHECK(parameter(trainer, state) == m);
    }
    feed_extra(1);
    const tsr_step next = step(trainer);
    CHECK(next.step == 2);
    CHECK(next.grad_norm == doctest::Approx(grad_norm));
    CHECK(parameter(trainer, "w") != w);
  }
}

TEST_CASE("labels of one's own: the mean over those that count, unless loss_scale is fed; no index out of range") {
  const Runtime rt = runtime();
  const Model base = described("llama:L=1,C=16,H=2,F=24,V=64,T=16");
  tsr_graph *graph = nullptr, *with_loss = nullptr;
  ok(tsr_model_graph(base.get(), &graph));
  const Graph forward(graph);
  ok(tsr_graph_token_loss(graph, &with_loss));
  const Graph loss_graph(with_loss);
  tsr_model* model_raw = nullptr;
  ok(tsr_model_new_from_graph(with_loss, nullptr, &model_raw));
  const Model model(model_raw);
  constexpr int64_t kBatch = 4;
  constexpr int64_t kSeq = 8;
  const auto ints = [](const std::vector<int32_t>& values) {
    const int64_t dims[] = {kBatch, kSeq};
    tsr_tensor* made = nullptr;
    ok(tsr_tensor_new(TSR_I32, 2, dims, &made));
    std::copy(values.begin(), values.end(), static_cast<int32_t*>(tsr_tensor_writable(made)));
    return Tensor(made);
  };
  std::vector<int32_t> tokens, positions, labels, masked;
  for (int32_t i = 0; i < kBatch * kSeq; ++i) {
    tokens.push_back(i * 7 % 64);
    positions.push_back(i % kSeq);
    labels.push_back((i * 7 + 5) % 64);
    masked.push_back(i % 9 == 0 ? labels.back() : i % 2 == 0 ? -1 : -100);
  }
  struct Form {
    const char *devices, *parallel;
  };
  for (const auto& [devices, parallel] : {Form{"cpu:1", ""}, Form{"cpu:2", "dp=2,mb=1"}}) {
    CAPTURE(devices);
    tsr_trainer* made = nullptr;
    ok(tsr_trainer_new(rt.get(), model.get(), nullptr,
                       options({{"batch", kBatch},
                                {"seq", kSeq},
                                {"lr", 0.0},
                                {"devices", std::string(devices)},
                                {"parallel", std::string(parallel)}})
                           .get(),
                       &made));
    const Trainer trainer(made);
    ok(tsr_trainer_feed(made, "tokens", ints(tokens).get()));
    ok(tsr_trainer_feed(made, "positions", ints(positions).get()));
    ok(tsr_trainer_feed(made, "labels", ints(labels).get()));
    const double whole = step(trainer).loss;
    CHECK(whole > 3);  // about log 64, for every label
    CHECK(whole < 6);
    CHECK(evaluated(trainer) == doctest::Approx(whole));
    ok(tsr_trainer_feed(made, "labels", ints(masked).get()));
    const double of_some = step(trainer).loss;
    CHECK(of_some > 3);
    CHECK(of_some < 6);
    CHECK(evaluated(trainer) == doctest::Approx(of_some));
    // No label at all: neither a loss nor a step.
    const std::vector<int32_t> none(kBatch * kSeq, -1);
    ok(tsr_trainer_feed(made, "labels", ints(none).get()));
    CHECK(take(tsr_trainer_step(made, nullptr)).message.find("input 'labels' has no label") != std::string::npos);
    double loss = 0;
    CHECK(take(tsr_trainer_evaluate(made, &loss)).code == TSR_FAILED_PRECONDITION);
    ok(tsr_trainer_feed(made, "labels", ints(masked).get()));
    // A scale of the caller's is obeyed, step after step.
    ok(tsr_trainer_feed(made, "loss_scale", tensor_f32({}, {1.0f}).get()));
    const auto count = static_cast<double>(std::ranges::count_if(masked, [](int32_t label) { return label >= 0; }));
    for (int i = 0; i < 2; ++i) CHECK(step(trainer).loss == doctest::Approx(count * of_some));
    CHECK(evaluated(trainer) == doctest::Approx(count * of_some));
    // Its loss may have other terms than those of labels.
    ok(tsr_trainer_feed(made, "labels", ints(none).get()));
    CHECK(step(trainer).loss == 0);

    const auto refused = [&](const char* input, std::vector<int32_t> values, int32_t bad) {
      values[3] = bad;
      const Error error = take(tsr_trainer_feed(made, input, ints(values).get()));
      CHECK(error.code == TSR_INVALID_ARGUMENT);
      return error.message;
    };
    CHECK(refused("tokens", tokens, 99999) ==
          "input 'tokens' holds 99999 at place 3, wanted 0 to 63: 'token_embedding' has 64 rows");
    CHECK(refused("tokens", tokens, -1).find("wanted 0 to 63") != std::string::npos);
    CHECK(refused("labels", labels, 64).find("holds 64 at place 3, wanted 0 to 63, or -1 to leave") !=
          std::string::npos);
    for (const char* own : {"lr", "step"})
      CHECK(take(tsr_trainer_feed(made, own, tensor_f32({}, {1}).get())).message.find("is fed by the trainer") !=
            std::string::npos);
  }
}

TEST_CASE(
    "a factor on the loss that is too large is halved until the step is made, which has the bits of none") {
  const Runtime rt = runtime();
  const Model model = mlp_model();
  const Trainer plain = mlp_trainer(rt, model, {});
  const Trainer scaled =
      mlp_trainer(rt, model, {{"loss_scaling", 0x1p90}, {"loss_scaling_interval", int64_t{3}}});
  CHECK(losses(scaled, 10) == losses(plain, 10));
  CHECK(parameter(scaled, "w1") == parameter(plain, "w1"));
  CHECK(parameter(scaled, "w1.v") == parameter(plain, "w1.v"));
  // Halved before the first step, then tried again every third step: doubled, and halved where that
  // overflows.
  const std::vector<float> offset = parameter(scaled, "loss_scaling.offset");
  CHECK(offset.at(0) < -15);
  CHECK(offset.at(0) > -40);
  const std::string said = report(scaled);
  const size_t at = said.find(R"("skipped_steps":)");
  REQUIRE(at != std::string::npos);
  CHECK(std::stoi(said.substr(at + 16)) >= static_cast<int>(-offset.at(0)));

  // A value that no factor can mend is an error, and changes nothing.
  const std::vector<float> w1 = parameter(scaled, "w1");
  std::vector<float> poisoned = noise(64, 1);
  poisoned[5] = std::numeric_limits<float>::quiet_NaN();
  ok(tsr_trainer_feed(scaled.get(), "x", tensor_f32({8, 8}, poisoned).get()));
  CHECK(take(tsr_trainer_step(scaled.get(), nullptr)).code == TSR_NOT_FINITE);
  CHECK(parameter(scaled, "w1") == w1);

  const Error error =
      take(tsr_trainer_new(rt.get(), model.get(), nullptr, options({{"loss_scaling", 3.0}}).get(), nullptr));
  CHECK(error.code == TSR_INVALID_ARGUMENT);
}

TEST_CASE("feeding what the graph has not, or in another shape, names what it has") {
  const Runtime rt = runtime();
  const Model model = mlp_model();
  const Trainer trainer = mlp_trainer(rt, model, {});
  CHECK(take(tsr_trainer_feed(trainer.get(), "xx", tensor_f32({1}, {0}).get())).code == TSR_NOT_FOUND);
  const Error shape = take(tsr_trainer_feed(trainer.get(), "x", tensor_f32({4, 8}, noise(32, 0)).get()));
  CHECK(shape.code == TSR_INVALID_ARGUMENT);
  CHECK(shape.message.find("f32[8, 8]") != std::string::npos);
  CHECK(take(tsr_trainer_step(trainer.get(), nullptr)).code == TSR_FAILED_PRECONDITION);  // nothing fed
}
