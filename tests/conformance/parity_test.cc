// Plans carried out on CPU virtual devices against one device: losses, weights, memory and bytes sent.
#include <doctest/doctest.h>

#include <cmath>
#include <numeric>
#include <random>

#include "graph/base/text.h"
#include "graph/models/model_family.h"
#include "graph/transform/prune.h"
#include "graph/transform/training.h"
#include "parallel/lowering/lower.h"
#include "parallel/planner/planner.h"
#include "parallel/strategy/strategy.h"
#include "runtime/session.h"
#include "tests/parallel/volumes.h"
#include "tests/test_backend.h"

extern "C" const tsr_backend_api* tsr_cpu_backend_entry(const tsr_host_api* host);

using namespace tessera;

namespace {

struct Job {
  std::string model;
  int64_t batch = 12, tokens = 16;
  bool tied = true;
  int steps = 3;
  std::string optimizer = "adamw";
  double lr = 1e-3;
  double clip_norm = 0;
  double dropout = 0;
};

struct Outcome {
  std::string error;
  std::vector<double> losses;  // of the steps, then of an evaluation after them
  std::map<std::string, std::vector<float>> weights;
  std::vector<MemoryReport> memory;
  std::vector<CommReport> sent;
  Program program;
  int64_t allocations_after_first_step = 0;
};

std::vector<float> random_values(const Graph& graph, TensorId id, int64_t count) {
  const Initializer initializer = initializer_for(graph, id);
  std::vector<float> values(static_cast<size_t>(count),
                            initializer.kind == Initializer::Kind::kOnes ? 1.0F : 0.0F);
  if (initializer.kind != Initializer::Kind::kNormal) return values;
  std::seed_seq seed(graph.tensor(id).name.begin(), graph.tensor(id).name.end());
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, static_cast<float>(initializer.stddev));
  for (float& value : values) value = normal(random);
  return values;
}

HostTensor tensor_of(const TensorType& type, std::vector<int32_t> values) {
  return HostTensor::copy_of<int32_t>(type, values);
}
HostTensor scalar(float value) { return HostTensor::copy_of<float>({DType::kF32, {}}, std::span(&value, 1)); }

Status run_job(const Job& job, std::string_view parallel, Outcome& out) {
  TSR_ASSIGN_OR_RETURN(ModelConfig config, parse_shorthand(job.model));
  config.flags["tied"] = job.tied;
  if (job.dropout > 0) config.reals["dropout"] = job.dropout;
  TSR_ASSIGN_OR_RETURN(Graph forward, build_model(config));
  TSR_RETURN_IF_ERROR(add_token_loss(forward));
  TrainingOptions training;
  training.optimizer.name = job.optimizer;
  training.clip_norm = job.clip_norm;
  TSR_ASSIGN_OR_RETURN(const Graph step, make_training_step(forward, training));
  TSR_ASSIGN_OR_RETURN(const StrategyPins pins, parse_parallel(parallel));

  const std::vector<std::pair<std::string, int64_t>> symbols = {{"T", job.tokens}};
  TSR_ASSIGN_OR_RETURN(const Graph partly, step.bind_partly(symbols));
  TSR_ASSIGN_OR_RETURN(Plan plan, apply_strategy(partly, pins.spec, job.batch));
  plan.symbols = symbols;

  RegistryOptions options;
  options.built_in = {tsr_cpu_backend_entry};
  options.threads = 2;
  options.plugin_path = test::plugin_folder();
  BackendRegistry registry(options);
  TSR_ASSIGN_OR_RETURN(const std::string named, test::devices_for(registry, pins.spec.devices()));
  TSR_ASSIGN_OR_RETURN(auto devices, DeviceSet::open(registry, named));
  TSR_ASSIGN_OR_RETURN(const Graph evaluation,
                       make_evaluation(job.dropout > 0 ? without_dropout(forward).value() : forward));
  PlanOptions like_step;
  like_step.global_batch = job.batch;
  like_step.symbols = symbols;
  like_step.like = &plan;
  like_step.like_graph = &step;
  TSR_ASSIGN_OR_RETURN(const PlanResult evaluated,
                       make_plan(evaluation, devices->cluster(), devices->catalog(), like_step));
  const std::vector<EntrySpec> entries = {{"train_step", &step, &plan},
                                          {"eval", &evaluation, &evaluated.plan}};
  TSR_ASSIGN_OR_RETURN(out.program, lower(entries, devices->catalog()));
  TSR_RETURN_IF_ERROR(verify(out.program));
  TSR_ASSIGN_OR_RETURN(auto executable, Executable::prepare(devices, out.program));
  SessionOptions session_options;
  session_options.measure_memory = true;
  TSR_ASSIGN_OR_RETURN(auto session, Session::create(executable, session_options));

  for (const TensorId id : step.tensors_of_kind(TensorKind::kParameter)) {
    const TensorType& type = step.type(id);
    const auto values = random_values(step, id, type.shape.elements());
    TSR_RETURN_IF_ERROR(session->write(step.tensor(id).name, HostTensor::copy_of<float>(type, values)));
  }
  const TensorType ids{DType::kI32, {job.batch, job.tokens}};
  const int64_t vocabulary = config.sizes["V"];
  std::mt19937 random(5);
  for (int s = 0; s < job.steps; ++s) {
    std::vector<int32_t> tokens, labels, positions;
    int64_t valid = 0;
    for (int64_t i = 0; i < job.batch * job.tokens; ++i) {
      tokens.push_back(static_cast<int32_t>(random() % static_cast<uint32_t>(vocabulary)));
      labels.push_back(i % 7 == 0 ? -1 : static_cast<int32_t>((tokens.back() + 1) % vocabulary));
      positions.push_back(static_cast<int32_t>(i % job.tokens));
      valid += labels.back() >= 0;
    }
    for (const std::string_view to : {"train_step", "eval"}) {
      TSR_RETURN_IF_ERROR(session->feed(to, "tokens", tensor_of(ids, tokens)));
      TSR_RETURN_IF_ERROR(session->feed(to, "labels", tensor_of(ids, labels)));
      TSR_RETURN_IF_ERROR(session->feed(to, "positions", tensor_of(ids, positions)));
      TSR_RETURN_IF_ERROR(session->feed(to, "loss_scale", scalar(1.0F / static_cast<float>(valid))));
    }
    TSR_RETURN_IF_ERROR(session->feed("train_step", "lr", scalar(static_cast<float>(job.lr))));
    TSR_RETURN_IF_ERROR(session->feed("train_step", "step", scalar(static_cast<float>(s + 1))));
    const int64_t seed = 100 + s;
    if (job.dropout > 0)
      TSR_RETURN_IF_ERROR(session->feed(
          "train_step", "seed", HostTensor::copy_of<int64_t>({DType::kI64, {}}, std::span(&seed, 1))));
    if (s == 1) {
      out.sent = session->communication();
      out.allocations_after_first_step = -session->allocations();
    }
    TSR_RETURN_IF_ERROR(session->run("train_step"));
    TSR_ASSIGN_OR_RETURN(const HostTensor loss, session->fetch("train_step", "loss"));
    out.losses.push_back(loss.as<float>()[0]);
  }
  TSR_RETURN_IF_ERROR(session->run("eval"));
  TSR_ASSIGN_OR_RETURN(const HostTensor eval_loss, session->fetch("eval", "loss"));
  out.losses.push_back(eval_loss.as<float>()[0]);
  out.allocations_after_first_step += session->allocations();
  out.memory = session->memory();
  for (const TensorId id : step.tensors_of_kind(TensorKind::kParameter)) {
    TSR_ASSIGN_OR_RETURN(const HostTensor value, session->read(step.tensor(id).name));
    out.weights[step.tensor(id).name].assign(value.as<float>().begin(), value.as<float>().end());
  }
  return {};
}

Outcome outcome(const Job& job, std::string_view parallel) {
  Outcome out;
  out.error = run_job(job, parallel, out).to_string();
  return out;
}

// The bias of attention's keys shifts every score of a query alike: its gradient is zero up to rounding.
bool has_gradient(std::string_view name) { return !name.ends_with(".k.bias"); }

double worst_weight(const Outcome& a, const Outcome& b) {
  double worst = 0;
  for (const auto& [name, values] : a.weights) {
    if (!has_gradient(name)) continue;
    double difference = 0, norm = 0;
    const auto& others = b.weights.at(name);
    for (size_t i = 0; i < values.size(); ++i) {
      difference += std::pow(double{values[i]} - others[i], 2);
      norm += std::pow(double{values[i]}, 2);
    }
    worst = std::max(worst, std::sqrt(difference / std::max(norm, 1e-30)));
  }
  return worst;
}

// Losses within 1e-5 of one device; weights after the steps within `weight_tolerance` of their norm (AdamW
// divides by the root of tiny second moments in its first steps, so differences of rounding grow there).
void check_parity(const Job& job, std::string_view parallel, const Outcome& single, double weight_tolerance) {
  CAPTURE(parallel);
  const Outcome out = outcome(job, parallel);
  REQUIRE(out.error == "ok");
  REQUIRE(out.losses.size() == single.losses.size());
  for (size_t s = 0; s < out.losses.size(); ++s)
    CHECK(std::abs(out.losses[s] - single.losses[s]) <= 1e-5 * std::abs(single.losses[s]));
  CHECK(worst_weight(single, out) <= weight_tolerance);
  for (const MemoryReport& memory : out.memory) {
    CHECK(memory.measured_bytes == memory.predicted_bytes);
    // Rounding offsets up to 64 bytes shows in models of a few hundred values.
    if (memory.max_live_bytes > 1000000)
      CHECK(static_cast<double>(memory.predicted_bytes) <= 1.03 * static_cast<double>(memory.max_live_bytes));
  }
  double reported = 0;
  for (const CommReport& report : out.sent) reported += static_cast<double>(report.bytes);
  CHECK(reported == doctest::Approx(total_bytes(count_sent(out.program, "train_step"))).epsilon(1e-9));
  CHECK(out.allocations_after_first_step == 0);
}

const Job kStories{.model = "llama:L=5,C=64,H=8,KV=4,F=172,V=512,T=64"};

}  // namespace

TEST_CASE("a small llama trains alike on every plan as on one device") {
  const Outcome single = outcome(kStories, "single");
  REQUIRE(single.error == "ok");
  CHECK(single.losses.back() < single.losses.front());
  for (const std::string_view parallel :
       {"dp=4", "tp=4", "tp=3", "dp=2,tp=2", "tp=4,sp", "tp=3,sp", "dp=2,zero=1", "dp=2,zero=2,mb=2",
        "dp=2,zero=3,mb=3", "dp=3,tp=2,zero=2", "dp=4,zero=3:2", "dp=2,tp=2,sp,zero=3,mb=2", "mb=4", "dp=5"})
    check_parity(kStories, parallel, single, 2e-4);
}

TEST_CASE("a gpt2 with biases, odd sizes and untied head trains alike on every plan as on one device") {
  const Job job{.model = "gpt2:L=2,C=30,H=6,V=67,T=16",
                .batch = 5,
                .tokens = 7,
                .tied = false,
                .optimizer = "sgd",
                .lr = 0.1,
                .clip_norm = 0.5};
  const Outcome single = outcome(job, "single");
  REQUIRE(single.error == "ok");
  for (const std::string_view parallel :
       {"dp=2", "dp=3", "tp=2", "tp=3", "tp=4,sp", "dp=2,tp=3,zero=1", "dp=2,tp=2,sp,zero=3"})
    check_parity(job, parallel, single, 1e-5);
}

TEST_CASE("dropout drops the same elements on every plan") {
  const Job job{.model = "gpt2:L=2,C=48,H=6,V=90,T=16",
                .batch = 6,
                .tokens = 9,
                .optimizer = "sgd",
                .lr = 0.05,
                .clip_norm = 1,
                .dropout = 0.2};
  const Outcome single = outcome(job, "single");
  REQUIRE(single.error == "ok");
  for (const std::string_view parallel :
       {"dp=2", "mb=2", "tp=3", "tp=2,sp", "dp=2,tp=2,sp,zero=2,mb=1", "dp=3,zero=3"})
    check_parity(job, parallel, single, 1e-5);
}
