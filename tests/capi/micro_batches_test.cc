// Micro-batches change no number: of a graph whose loss they could change, the batch stays in one piece, or
// what is made of sums over all of it waits for them.
#include <cmath>

#include "c_api.h"
#include "small_training.h"
#include "tests/number_after.h"

using namespace capi_test;

namespace {

// y = x w in f64 of 6 rows; `rest` makes "loss" of y, the target t and the squares of their difference.
Model regression(const std::string& rest) {
  const std::string text = R"(graph {
  symbol B
  input x: f64[B, 7]
  input t: f64[B, 3]
  parameter w: f64[7, 3]
  y = matmul(x, w) : f64[B, 3]
)" + rest + "\n  output loss = loss\n}";
  tsr_graph* graph = nullptr;
  ok(tsr_graph_parse(text.data(), text.size(), &graph));
  const Graph owner(graph);
  tsr_model* made = nullptr;
  ok(tsr_model_new_from_graph(graph, options({{"seed", 3}}).get(), &made));
  return Model(made);
}

const std::string kSquares = "  d = sub(y, t) : f64[B, 3]\n  q = square(d) : f64[B, 3]\n";

struct Trained {
  Error error;
  std::vector<double> numbers;  // losses and norms of three steps, the evaluation, the weights
  std::string report;
};

Trained train(const Model& model, const char* devices, const char* parallel, const char* limit = "1GiB") {
  const Runtime rt = runtime();
  tsr_trainer* made = nullptr;
  Trained out;
  out.error = take(tsr_trainer_new(rt.get(), model.get(), nullptr,
                                   options({{"devices", std::string(devices)},
                                            {"parallel", std::string(parallel)},
                                            {"memory_limit", std::string(limit)},
                                            {"batch", 6},
                                            {"lr", 0.05},
                                            {"optimizer", std::string("sgd")}})
                                       .get(),
                                   &made));
  if (out.error.code != TSR_OK) return out;
  const Trainer trainer(made);
  ok(tsr_trainer_feed(made, "x", waves({6, 7}, 1.7).get()));
  ok(tsr_trainer_feed(made, "t", waves({6, 3}, 2.3).get()));
  for (int i = 0; i < 3; ++i) {
    tsr_step step{};
    step.struct_size = sizeof step;
    ok(tsr_trainer_step(made, &step));
    out.numbers.insert(out.numbers.end(), {step.loss, step.grad_norm});
  }
  out.numbers.push_back(evaluated(trainer));
  tsr_tensor* value = nullptr;
  ok(tsr_trainer_read(made, "w", &value));
  const Tensor owner(value);
  const auto* weights = static_cast<const double*>(tsr_tensor_data(value));
  out.numbers.insert(out.numbers.end(), weights, weights + 21);
  out.report = text([&](auto... to) { return tsr_trainer_report(made, to...); });
  return out;
}

// f64; sums in another order.
void check_same(const Trained& a, const Trained& b) {
  REQUIRE(a.numbers.size() == b.numbers.size());
  for (size_t i = 0; i < a.numbers.size(); ++i)
    CHECK(a.numbers[i] == doctest::Approx(b.numbers[i]).epsilon(1e-12));
}

}  // namespace

TEST_CASE("what is added to a sum over the batch is added once, in however many micro-batches") {
  const Model model = regression(kSquares + R"(  m = reduce_mean(q) {axes = [0, 1]} : f64[]
  n = sum_squares(w) : f64[]
  r = scale(n) {factor = 0.1} : f64[]
  loss = add(m, r) : f64[])");
  const Trained whole = train(model, "cpu:1", "");
  CAPTURE(whole.error.message);
  REQUIRE(whole.error.code == TSR_OK);
  struct Form {
    const char *devices, *parallel;
  };
  for (const Form& form : {Form{"cpu:1", "mb=1"},
                           {"cpu:1", "mb=2"},
                           {"cpu:3", "dp=3,mb=1"},
                           {"cpu:2", "tp=2,mb=3"},
                           {"cpu:2", "dp=2,zero=3,mb=1"},
                           {"cpu:2", "pp=2"},
                           {"cpu:1", "mb=2,offload=grads"}}) {
    CAPTURE(form.parallel);
    const Trained cut = train(model, form.devices, form.parallel);
    CAPTURE(cut.error.message);
    check_same(cut, whole);
  }
}

TEST_CASE("a batch whose sequences read a sum over it is not cut, and the message names who reads it") {
  struct Loss {
    const char *what, *says;
    std::string rest;
  };
  const std::string mean = "  m = reduce_mean(q) {axes = [0, 1]} : f64[]\n";
  for (const Loss& it :
       {Loss{"root of a mean", "gives every sequence what is summed over all of the batch",
             kSquares + mean + "  loss = sqrt(m) : f64[]"},
        Loss{"product of two means", "gives every sequence what is summed over all of the batch",
             kSquares + mean + "  a = reduce_mean(y) {axes = [0, 1]} : f64[]\n  loss = mul(m, a) : f64[]"},
        Loss{"centred by the batch", "broadcast",
             R"(  a = reduce_mean(y) {axes = [0]} : f64[3]
  b = broadcast(a, y) {axes = [0]} : f64[B, 3]
  c = sub(y, b) : f64[B, 3]
  d = sub(c, t) : f64[B, 3]
  q = square(d) : f64[B, 3]
  loss = reduce_mean(q) {axes = [0, 1]} : f64[])"},
        Loss{"softmax over the batch", "works on the whole batch at once",
             R"(  a = transpose(y) {perm = [1, 0]} : f64[3, B]
  b = softmax(a) : f64[3, B]
  c = transpose(b) {perm = [1, 0]} : f64[B, 3]
  d = sub(c, t) : f64[B, 3]
  q = square(d) : f64[B, 3]
  loss = reduce_mean(q) {axes = [0, 1]} : f64[])"}}) {
    CAPTURE(it.what);
    const Model model = regression(it.rest);
    const Trained whole = train(model, "cpu:1", "");
    CAPTURE(whole.error.message);
    REQUIRE(whole.error.code == TSR_OK);
    for (const char* words : {"mb=1", "mb=3"}) {
      const Trained cut = train(model, "cpu:1", words);
      CHECK(cut.error.code == TSR_INVALID_ARGUMENT);
      CAPTURE(cut.error.message);
      CHECK(cut.error.message.find(it.says) != std::string::npos);
      CHECK(cut.error.message.find("leave mb out") != std::string::npos);
    }
    // Without an option there is one micro-batch; pipelines take one too, and so do plans with little memory.
    check_same(train(model, "cpu:2", "dp=2"), whole);
    check_same(train(model, "cpu:2", "pp=2"), whole);
    int64_t bytes = tessera::test::number_after(whole.report, "\"predicted\":");
    for (; bytes > 1000; bytes -= bytes / 20) {
      const Trained tight = train(model, "cpu:1", "", std::to_string(bytes).c_str());
      if (tight.error.code == TSR_OUT_OF_MEMORY) break;
      CAPTURE(bytes);
      check_same(tight, whole);
    }
  }
}

TEST_CASE("an evaluation on a pipeline is cut as its steps are, and holds no more") {
  const Runtime rt = runtime();
  const Model model = described_with_bytes("llama:L=4,C=32,H=4,KV=2,F=48,V=256,T=32", 3);
  for (const char* words : {"pp=4", "pp=2:zb-v", "pp=2"}) {
    CAPTURE(words);
    tsr_trainer* made = nullptr;
    ok(tsr_trainer_new(rt.get(), model.get(), bytes_dataset().get(),
                       options({{"devices", std::string(words[3] == '4' ? "cpu:4" : "cpu:2")},
                                {"parallel", std::string(words)},
                                {"batch", 8}})
                           .get(),
                       &made));
    const Trainer trainer(made);
    for (int i = 0; i < 2; ++i) one_step(trainer);
    std::string report = text([&](auto... to) { return tsr_trainer_report(made, to...); });
    // The two steps touched all that was planned for steps and evaluation.
    int devices = 0;
    for (size_t at; (at = report.find("\"measured\":")) != std::string::npos; ++devices) {
      const size_t before = report.rfind("\"predicted\":", at);
      CHECK(tessera::test::number_after(report.substr(at), "\"measured\":") ==
            tessera::test::number_after(report.substr(before), "\"predicted\":"));
      report.erase(0, at + 1);
    }
    CHECK(devices == words[3] - '0');
    CHECK(std::isfinite(evaluated(trainer)));
  }
}
