// A weight that mixes tokens, [T, T], under every way to split the sequence: its gradient has the sequence
// twice.
#include "c_api.h"
#include "small_training.h"

using namespace capi_test;

namespace {

// Losses of three steps and the weight after them.
std::vector<double> mixed(const char* devices, const char* parallel) {
  static constexpr const char* kText = R"(graph {
  symbol B
  input x: f64[B, 6, 5]
  input t: f64[B, 6, 5]
  parameter w: f64[6, 6]
  a = transpose(x) {perm = [0, 2, 1]} : f64[B, 5, 6]
  b = matmul(a, w) : f64[B, 5, 6]
  c = transpose(b) {perm = [0, 2, 1]} : f64[B, 6, 5]
  d = sub(c, t) : f64[B, 6, 5]
  q = square(d) : f64[B, 6, 5]
  loss = reduce_mean(q) {axes = [0, 1, 2]} : f64[]
  output loss = loss
})";
  tsr_graph* graph = nullptr;
  ok(tsr_graph_parse(kText, TSR_TEXT_END, &graph));
  const Graph owner(graph);
  tsr_model* model = nullptr;
  ok(tsr_model_new_from_graph(graph, nullptr, &model));
  const Model kept(model);
  const Runtime rt = runtime();
  tsr_trainer* made = nullptr;
  ok(tsr_trainer_new(rt.get(), model, nullptr,
                     options({{"devices", std::string(devices)},
                              {"parallel", std::string(parallel)},
                              {"batch", 4},
                              {"optimizer", std::string("sgd")},
                              {"lr", 0.1}})
                         .get(),
                     &made));
  const Trainer trainer(made);
  ok(tsr_trainer_feed(made, "x", waves({4, 6, 5}, 1.7).get()));
  ok(tsr_trainer_feed(made, "t", waves({4, 6, 5}, 2.3).get()));
  std::vector<double> numbers;
  for (int i = 0; i < 3; ++i) numbers.push_back(one_step(trainer));
  tsr_tensor* value = nullptr;
  ok(tsr_trainer_read(made, "w", &value));
  const Tensor weight(value);
  const auto* data = static_cast<const double*>(tsr_tensor_data(value));
  numbers.insert(numbers.end(), data, data + 36);
  return numbers;
}

}  // namespace

TEST_CASE("a weight that mixes tokens trains the same however the sequence is split") {
  const std::vector<double> one = mixed("cpu:1", "");
  struct Form {
    const char *devices, *parallel;
  };
  for (const Form& form : {Form{"cpu:2", "cp=ring:2"},
                           {"cpu:3", "cp=ring:3"},
                           {"cpu:4", "cp=ring:4"},
                           {"cpu:3", "cp=ring:3:contiguous"},
                           {"cpu:4", "cp=ring:2,tp=2"},
                           {"cpu:2", "cp=gather:2"},
                           {"cpu:2", "tp=2,sp"},
                           {"cpu:4", "dp=2,cp=ring:2,zero=3"}}) {
    CAPTURE(form.parallel);
    const std::vector<double> split = mixed(form.devices, form.parallel);
    for (size_t i = 0; i < one.size(); ++i) CHECK(split[i] == doctest::Approx(one[i]).epsilon(1e-12));
  }
}
