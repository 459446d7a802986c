// Optimizers: 20 steps of a small network against its formulas in f64; rates and decays of groups; resumed runs.
#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <span>

#include "fed_training.h"

using namespace capi_test;

namespace {

constexpr size_t kBatch = 8, kIn = 24, kHidden = 192, kOut = 5;
constexpr int kSteps = 20;

// x [B, 24] -> 192, with bias and relu -> [B, 5]; half the squared error against y.
constexpr const char* kNetwork = R"(graph {
  symbol B
  input x: f32[B, 24]
  input y: f32[B, 5]
  parameter block.0.w: f32[24, 192]
  parameter block.0.bias: f32[192]
  parameter out: f32[192, 5]
  h = matmul(x, block.0.w) : f32[B, 192]
  hb = add_bias(h, block.0.bias) : f32[B, 192]
  a = relu(hb) : f32[B, 192]
  o = matmul(a, out) : f32[B, 5]
  d = sub(o, y) : f32[B, 5]
  s = square(d) : f32[B, 5]
  sum = reduce_sum(s) {axes = [0, 1]} : f32[]
  loss = scale(sum) {factor = 0.5} : f32[]
  output loss = loss
})";

Model network() {
  tsr_graph* graph = nullptr;
  ok(tsr_graph_parse(kNetwork, TSR_TEXT_END, &graph));
  const Graph owner(graph);
  tsr_model* made = nullptr;
  ok(tsr_model_new_from_graph(graph, options({{"seed", int64_t{3}}}).get(), &made));
  return Model(made);
}

using Values = std::vector<double>;
constexpr const char* kNames[] = {"block.0.w", "block.0.bias", "out"};

struct Matrix {
  size_t rows, cols;  // rows 1: no matrix
};
constexpr Matrix kShapes[] = {{kIn, kHidden}, {1, kHidden}, {kHidden, kOut}};

// One parameter with its gradient and what the optimizer remembers.
struct Weight {
  Matrix shape;
  Values value, gradient;
  std::map<std::string, Values> state;

  Values& zeros(const std::string& name, size_t count) {
    Values& values = state[name];
    values.resize(count);
    return values;
  }
  Values& zeros(const std::string& name) { return zeros(name, value.size()); }
};

Values inputs_of(size_t count, uint32_t seed) {
  const std::vector<float> values = noise(count, seed);
  return {values.begin(), values.end()};
}

// Gradients of the network at step `step`, by hand.
void differentiate(std::span<Weight> weights, uint32_t step) {
  const Values x = inputs_of(kBatch * kIn, 2 * step), y = inputs_of(kBatch * kOut, 2 * step + 1);
  for (Weight& weight : weights) weight.gradient.assign(weight.value.size(), 0);
  const Values &w = weights[0].value, &bias = weights[1].value, &out = weights[2].value;
  for (size_t b = 0; b < kBatch; ++b) {
    Values hidden(bias), error(kOut), back(kHidden);
    for (size_t h = 0; h < kHidden; ++h) {
      for (size_t i = 0; i < kIn; ++i) hidden[h] += x[b * kIn + i] * w[i * kHidden + h];
      hidden[h] = std::max(0.0, hidden[h]);
    }
    for (size_t o = 0; o < kOut; ++o) {
      for (size_t h = 0; h < kHidden; ++h) error[o] += hidden[h] * out[h * kOut + o];
      error[o] -= y[b * kOut + o];
    }
    for (size_t h = 0; h < kHidden; ++h)
      for (size_t o = 0; o < kOut; ++o) {
        weights[2].gradient[h * kOut + o] += hidden[h] * error[o];
        if (hidden[h] > 0) back[h] += error[o] * out[h * kOut + o];
      }
    for (size_t h = 0; h < kHidden; ++h) {
      weights[1].gradient[h] += back[h];
      for (size_t i = 0; i < kIn; ++i) weights[0].gradient[i * kHidden + h] += x[b * kIn + i] * back[h];
    }
  }
}

// The update of one parameter at step 1, 2, ...
using Formula = std::function<void(Weight&, int step, double lr, double decay)>;

void adamw(Weight& w, int step, double lr, double decay, double beta1, double beta2, double eps) {
  Values &m = w.zeros("m"), &v = w.zeros("v");
  for (size_t i = 0; i < w.value.size(); ++i) {
    const double g = w.gradient[i];
    m[i] = beta1 * m[i] + (1 - beta1) * g;
    v[i] = beta2 * v[i] + (1 - beta2) * g * g;
    const double root = std::sqrt(v[i] / (1 - std::pow(beta2, step))) + eps;
    w.value[i] -= lr * (m[i] / (1 - std::pow(beta1, step)) / root + decay * w.value[i]);
  }
}

void lion(Weight& w, int, double lr, double decay) {
  Values& m = w.zeros("m");
  for (size_t i = 0; i < w.value.size(); ++i) {
    const double g = w.gradient[i], mixed = 0.9 * m[i] + 0.1 * g;
    w.value[i] -= lr * ((mixed > 0 ? 1 : mixed < 0 ? -1 : 0) + decay * w.value[i]);
    m[i] = 0.99 * m[i] + 0.01 * g;
  }
}

void sgd(Weight& w, int, double lr, double decay) {
  Values& momentum = w.zeros("momentum");
  for (size_t i = 0; i < w.value.size(); ++i) {
    momentum[i] = 0.9 * momentum[i] + w.gradient[i] + decay * w.value[i];
    w.value[i] -= lr * momentum[i];
  }
}

// Shazeer and Stern, algorithms 4 and 5, with the rate given.
void adafactor(Weight& w, int step, double lr, double decay) {
  const double keep = 1 - std::pow(step, -0.8);
  const auto [rows, cols] = w.shape;
  Values squares(w.value.size()), u(w.value.size());
  for (size_t i = 0; i < squares.size(); ++i) squares[i] = w.gradient[i] * w.gradient[i] + 1e-30;
  if (rows == 1) {
    Values& v = w.zeros("v");
    for (size_t i = 0; i < u.size(); ++i) {
      v[i] = keep * v[i] + (1 - keep) * squares[i];
      u[i] = w.gradient[i] / std::sqrt(v[i]);
    }
  } else {
    Values &r = w.zeros("rows", rows), &c = w.zeros("cols", cols), row(rows), col(cols);
    for (size_t i = 0; i < u.size(); ++i) {
      row[i / cols] += squares[i] / static_cast<double>(cols);
      col[i % cols] += squares[i] / static_cast<double>(rows);
    }
    double mean = 0;
    for (size_t i = 0; i < rows; ++i) {
      r[i] = keep * r[i] + (1 - keep) * row[i];
      mean += r[i] / static_cast<double>(rows);
    }
    for (size_t i = 0; i < cols; ++i) c[i] = keep * c[i] + (1 - keep) * col[i];
    for (size_t i = 0; i < u.size(); ++i) u[i] = w.gradient[i] / std::sqrt(r[i / cols] * c[i % cols] / mean);
  }
  double sum = 0;
  for (const double value : u) sum += value * value;
  const double above = std::max(1.0, std::sqrt(sum / static_cast<double>(u.size())));
  for (size_t i = 0; i < u.size(); ++i) w.value[i] -= lr * (u[i] / above + decay * w.value[i]);
}

// x [rows, inner] times y [inner, cols].
Values matmul(const Values& x, const Values& y, size_t rows, size_t inner, size_t cols) {
  Values z(rows * cols);
  for (size_t i = 0; i < rows; ++i)
    for (size_t k = 0; k < inner; ++k)
      for (size_t j = 0; j < cols; ++j) z[i * cols + j] += x[i * inner + k] * y[k * cols + j];
  return z;
}

// Jordan's code, for matrices of fewer rows than columns; what is 5 wide is the output, updated by AdamW.
void muon(Weight& w, int step, double lr, double decay) {
  const auto [rows, cols] = w.shape;
  if (rows == 1 || cols == kOut) return adamw(w, step, lr, decay, 0.9, 0.95, 1e-8);
  Values& m = w.zeros("momentum");
  Values x(m.size());
  double norm = 0;
  for (size_t i = 0; i < m.size(); ++i) {
    m[i] += (1 - 0.95) * (w.gradient[i] - m[i]);
    x[i] = w.gradient[i] + 0.95 * (m[i] - w.gradient[i]);
    norm += x[i] * x[i];
  }
  for (double& value : x) value /= std::max(std::sqrt(norm), 1e-7);
  for (int i = 0; i < 5; ++i) {
    Values turned(x.size());
    for (size_t at = 0; at < x.size(); ++at) turned[at % cols * rows + at / cols] = x[at];
    const Values a = matmul(x, turned, rows, cols, rows), square = matmul(a, a, rows, rows, rows);
    Values b(a.size());
    for (size_t at = 0; at < b.size(); ++at) b[at] = -4.7750 * a[at] + 2.0315 * square[at];
    const Values moved = matmul(b, x, rows, rows, cols);
    for (size_t at = 0; at < x.size(); ++at) x[at] = 3.4445 * x[at] + moved[at];
  }
  const double scale = 0.2 * std::sqrt(static_cast<double>(std::max(rows, cols)));
  for (size_t i = 0; i < m.size(); ++i) w.value[i] -= lr * (scale * x[i] + decay * w.value[i]);
}

// create_dynamic_map of Dettmers' library, for 8 bits: means of even steps from a tenth to one in each of seven decades.
Values dynamic_map(bool is_signed) {
  Values map = {0, 1};
  for (int i = 0; i < 7; ++i) {
    const int items = (is_signed ? 1 << i : 2 << i) + 1;
    for (int at = 0; at + 1 < items; ++at) {
      const auto bound = [&](int b) { return 0.1 + 0.9 * b / (items - 1); };
      const double mean = std::pow(10, i - 6) * (bound(at) + bound(at + 1)) / 2;
      map.push_back(mean);
      if (is_signed) map.push_back(-mean);
    }
  }
  std::ranges::sort(map);
  return map;
}

// The values that codes stand for, in blocks of 64.
void round_to_codes(Values& values, const Values& map) {
  for (size_t begin = 0; begin < values.size(); begin += 64) {
    double most = 0;
    for (size_t i = begin; i < begin + 64; ++i) most = std::max(most, std::abs(values[i]));
    for (size_t i = begin; i < begin + 64; ++i)
      values[i] = most * *std::ranges::min_element(
                             map, {}, [&](double value) { return std::abs(value - values[i] / most); });
  }
}

void adamw8(Weight& w, int step, double lr, double decay) {
  static const Values kFirst = dynamic_map(true), kSecond = dynamic_map(false);
  adamw(w, step, lr, decay, 0.9, 0.999, 1e-8);
  if (w.value.size() < 4096) return;
  round_to_codes(w.state["m"], kFirst);
  round_to_codes(w.state["v"], kSecond);
}

Trainer trainer_of(const Runtime& rt, const Model& model, std::initializer_list<Setting> settings) {
  const Options chosen = options(settings);
  ok(tsr_options_set_i64(chosen.get(), "batch", kBatch));
  ok(tsr_options_set_i64(chosen.get(), "warmup", 0));
  tsr_trainer* made = nullptr;
  ok(tsr_trainer_new(rt.get(), model.get(), nullptr, chosen.get(), &made));
  return Trainer(made);
}

void feed_step(const Trainer& trainer, uint32_t step) {
  ok(tsr_trainer_feed(trainer.get(), "x", tensor_f32({kBatch, kIn}, noise(kBatch * kIn, 2 * step)).get()));
  ok(tsr_trainer_feed(trainer.get(), "y",
                      tensor_f32({kBatch, kOut}, noise(kBatch * kOut, 2 * step + 1)).get()));
}

std::vector<Weight> weights_of(const Trainer& trainer) {
  std::vector<Weight> weights;
  for (size_t i = 0; i < 3; ++i) {
    const std::vector<float> values = parameter(trainer, kNames[i]);
    weights.push_back({kShapes[i], Values(values.begin(), values.end()), {}, {}});
  }
  return weights;
}

double largest(const Values& values) {
  double most = 0;
  for (const double value : values) most = std::max(most, std::abs(value));
  return most;
}

struct Method {
  const char* name;
  double lr, decay;
  Formula formula;
  bool has_codes = false;
};

const std::vector<Method>& methods() {
  static const std::vector<Method> all = {
      {"adamw", 1e-3, 0.1,
       [](Weight& w, int step, double lr, double decay) { adamw(w, step, lr, decay, 0.9, 0.999, 1e-8); }},
      {"sgd", 1e-3, 0.1, sgd},
      {"lion", 1e-3, 0.1, lion},
      {"adafactor", 1e-3, 0.1, adafactor},
      {"muon", 1e-3, 0.1, muon},
      {"adamw8", 1e-3, 0.1, adamw8, true},
  };
  return all;
}

// Its options, with groups of three kinds: the bias decays and the output has a rate of its own.
constexpr const char* kGroups =
    R"([{"match": "*.bias", "weight_decay": 0.5}, {"match": "o*", "lr_factor": 0.25, "weight_decay": 0.2}])";

// f32 rounds every sum and product of 20 steps: relative to the largest weight 1e-5 is about 80 roundings. What lies
// between two codes goes either way, and moves a moment by up to a tenth: a few weights, by a part of a step.
void check_near(const Method& method, const Values& found, const Values& wanted) {
  const double most = largest(wanted);
  size_t far = 0;
  double difference = 0;
  for (size_t i = 0; i < found.size(); ++i) {
    const double each = std::abs(found[i] - wanted[i]);
    if (!(each <= 1e-5 * most)) ++far;
    if (!(each <= difference)) difference = each;
  }
  CAPTURE(difference / most);
  CHECK(far <= (method.has_codes ? found.size() / 100 : 0));
  CHECK(difference <= (method.has_codes ? method.lr : 1e-5 * most));
}

}  // namespace

TEST_CASE("20 steps of every optimizer are those of its formulas in f64, by default and in groups") {
  const Runtime rt = runtime();
  const Model model = network();
  for (const Method& method : methods())
    for (const bool grouped : {false, true}) {
      CAPTURE(method.name);
      CAPTURE(grouped);
      const Trainer trainer = trainer_of(rt, model,
                                         {{"optimizer", std::string(method.name)},
                                          {"lr", method.lr},
                                          {"clip_norm", 0.0},
                                          {"weight_decay", method.decay},
                                          {"groups", std::string(grouped ? kGroups : "")}});
      std::vector<Weight> wanted = weights_of(trainer);
      for (int step = 1; step <= kSteps; ++step) {
        feed_step(trainer, static_cast<uint32_t>(step));
        ok(tsr_trainer_step(trainer.get(), nullptr));
        differentiate(wanted, static_cast<uint32_t>(step));
        method.formula(wanted[0], step, method.lr, method.decay);
        method.formula(wanted[1], step, method.lr, grouped ? 0.5 : 0);
        method.formula(wanted[2], step, method.lr * (grouped ? 0.25 : 1), grouped ? 0.2 : method.decay);
      }
      const std::vector<Weight> found = weights_of(trainer);
      for (size_t i = 0; i < 3; ++i) {
        CAPTURE(kNames[i]);
        check_near(method, found[i].value, wanted[i].value);
      }
    }
}

TEST_CASE("a run of every optimizer is resumed bit for bit, and on other layouts to rounding") {
  const Runtime rt = runtime();
  const Model model = network();
  for (const Method& method : methods()) {
    CAPTURE(method.name);
    const auto trainer = [&](const char* devices, const char* parallel) {
      return trainer_of(rt, model,
                        {{"optimizer", std::string(method.name)},
                         {"lr", method.lr},
                         {"devices", std::string(devices)},
                         {"parallel", std::string(parallel)}});
    };
    const auto train = [](const Trainer& made, uint32_t first, uint32_t last) {
      for (uint32_t step = first; step <= last; ++step) {
        feed_step(made, step);
        ok(tsr_trainer_step(made.get(), nullptr));
      }
    };
    const Scratch scratch;
    const std::string folder = scratch / "run";
    const Trainer whole = trainer("cpu:1", "");
    train(whole, 1, 3);
    ok(tsr_trainer_save(whole.get(), folder.c_str()));
    train(whole, 4, 6);
    const Trainer again = trainer("cpu:1", "");
    ok(tsr_trainer_resume(again.get(), folder.c_str()));
    train(again, 4, 6);
    for (const char* name : kNames) CHECK(parameter(again, name) == parameter(whole, name));
    const std::vector<Weight> wanted = weights_of(whole);
    for (const char* parallel : {"dp=2,zero=1", "dp=2,zero=2", "dp=2,zero=3", "tp=2"}) {
      CAPTURE(parallel);
      const Trainer other = trainer("cpu:2", parallel);
      ok(tsr_trainer_resume(other.get(), folder.c_str()));
      train(other, 4, 6);
      const std::vector<Weight> found = weights_of(other);
      for (size_t i = 0; i < 3; ++i) {
        CAPTURE(kNames[i]);
        check_near(method, found[i].value, wanted[i].value);
      }
    }
  }
}

TEST_CASE("parameters in bf16 train with every optimizer, on shards to the same bits of chance") {
  const Runtime rt = runtime();
  const Model model = network();
  for (const Method& method : methods()) {
    CAPTURE(method.name);
    const auto losses = [&](const char* devices, const char* parallel) {
      const Trainer trainer = trainer_of(rt, model,
                                         {{"optimizer", std::string(method.name)},
                                          {"lr", method.lr},
                                          {"weights", std::string("bf16")},
                                          {"devices", std::string(devices)},
                                          {"parallel", std::string(parallel)}});
      std::vector<double> all;
      for (int i = 0; i < 8; ++i) {
        feed_step(trainer, 1);
        all.push_back(step(trainer).loss);
      }
      return all;
    };
    const std::vector<double> single = losses("cpu:1", "");
    CHECK(single.back() < single.front());
    for (const char* parallel : {"dp=2,zero=1", "dp=2,zero=3", "tp=2"}) {
      CAPTURE(parallel);
      CHECK(losses("cpu:2", parallel).back() == doctest::Approx(single.back()).epsilon(1e-3));
    }
  }
}

TEST_CASE("the rate of steps to come is set, and the schedule's again") {
  const Runtime rt = runtime();
  const Trainer trainer =
      trainer_of(rt, network(), {{"lr", 1e-3}, {"steps", 10}, {"schedule", std::string("linear")}});
  feed_step(trainer, 1);
  CHECK(step(trainer).lr == doctest::Approx(1e-3));
  ok(tsr_trainer_set_lr(trainer.get(), 0));
  const std::vector<float> before = parameter(trainer, "out");
  CHECK(step(trainer).lr == 0);
  CHECK(parameter(trainer, "out") == before);
  ok(tsr_trainer_set_lr(trainer.get(), 0.25));
  CHECK(step(trainer).lr == 0.25);
  ok(tsr_trainer_set_lr(trainer.get(), -1));
  CHECK(step(trainer).lr == doctest::Approx(7e-4));
  const Error error = take(tsr_trainer_set_lr(trainer.get(), std::nan("")));
  CHECK(error.code == TSR_INVALID_ARGUMENT);
  CHECK(error.message == "lr is nan, wanted at most 1e6, or below 0 for the schedule's");
}

TEST_CASE("wrong groups and options that mean nothing are refused by name") {
  const Runtime rt = runtime();
  const Model model = network();
  const auto refused = [&](std::initializer_list<Setting> settings) {
    tsr_trainer* made = nullptr;
    const Error error = take(tsr_trainer_new(rt.get(), model.get(), nullptr, options(settings).get(), &made));
    CHECK(error.code == TSR_INVALID_ARGUMENT);
    return error.message;
  };
  const auto groups = [&](const char* text) { return refused({{"groups", std::string(text)}}); };
  const auto has = [](const std::string& text, const char* part) {
    const bool found = text.find(part) != std::string::npos;
    if (!found) MESSAGE(text);
    return found;
  };
  CHECK(has(groups(R"([{"match": "block.0.bios"}])"),
            "groups: 'block.0.bios' matches no parameter that trains; nearest: block.0.bias"));
  CHECK(has(groups("{}"), "groups: the text is not a JSON list"));
  CHECK(has(groups("[3]"), "groups: found 3, wanted an object"));
  CHECK(has(groups(R"([{"lr_factor": 2}])"), "has no 'match'"));
  CHECK(
      has(groups(R"([{"match": "*", "lr": 2}])"), "unknown key 'lr'; known: match, lr_factor, weight_decay"));
  CHECK(has(groups(R"([{"match": "*", "lr_factor": -1}])"), "'lr_factor' is -1, wanted a number from 0 to"));
  CHECK(has(refused({{"lora_plus_ratio", 16.0}}), "lora_plus_ratio: '*.lora_b' matches no parameter"));
  CHECK(has(refused({{"decay_shape", std::string("sqrt")}}), "'decay_shape' means nothing to schedule"));
  CHECK(has(refused({{"muon_scale", std::string("original")}}),
            "'muon_scale' means nothing to optimizer 'adamw'"));
  CHECK(has(refused({{"optimizer", std::string("lion")}, {"eps", 1e-3}}),
            "option 'eps' means nothing to optimizer 'lion'"));
  CHECK(has(refused({{"optimizer", std::string("adam")}}),
            "wanted one of adafactor, adamw, adamw8, lion, muon, sgd"));
}
