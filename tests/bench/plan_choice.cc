// Is the chosen plan the fastest? For every setting (model, devices, memory limit) the planner chooses, and
// its plan is timed against every named strategy that fits the same limit:
//   plan_choice [--profile FILE] [--measure N] [--all] [--only N,N,...] [--rounds N]
// FILE is what `tessera calibrate` wrote for this machine; without it prices are built-in rates. --measure:
// the planner decides between N finalists by running them, as the option `measure` has it.
// One line a setting: what was chosen, its step predicted and measured (medians of interleaved rounds), its
// arena predicted and touched, the best named strategy, and the ratio of the two. --all lists the strategies.
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "engine/program/measured_run.h"
#include "graph/base/text.h"
#include "graph/models/model_family.h"
#include "graph/transform/training.h"
#include "parallel/lowering/lower.h"
#include "parallel/planner/planner.h"
#include "parallel/pricing/simulator.h"
#include "parallel/strategy/strategy.h"
#include "runtime/session.h"
#include "serialize/device_profile_json.h"
#include "tests/test_backend.h"

extern "C" const tsr_backend_api* tsr_cpu_backend_entry(const tsr_host_api* host);

namespace tessera {
namespace {

constexpr std::string_view kEntry = "step";

struct Subject {
  std::string model;
  int64_t batch, tokens;
};

// Widths, depths and sequences of various proportions, so that no one strategy suits all.
const std::vector<Subject> kSubjects = {
    {"gpt2:L=4,C=64,H=4,V=256,T=64", 8, 64},
    {"gpt2:L=3,C=256,H=8,V=1024,T=64", 8, 64},
    {"llama:L=4,C=96,H=6,KV=2,F=256,V=1024,T=128", 4, 128},
    {"moe:L=2,C=128,H=4,KV=4,F=256,E=4,K=2,V=512,T=64", 8, 64},
    {"encoder:L=2,C=320,H=4,V=512,T=32", 8, 32},
};

// A memory limit is a share of what data parallelism over all devices takes; 0: no limit.
struct Devices {
  int32_t count;
  double share;
};
const std::vector<Devices> kDevices = {{2, 0}, {2, 0.6}, {4, 0.8}, {4, 0.4}};

const std::vector<std::string_view> kStrategies = {"single",
                                                   "mb=2",
                                                   "recompute=full",
                                                   "offload=optimizer",
                                                   "dp=2",
                                                   "dp=2,mb=2",
                                                   "dp=2,zero=1",
                                                   "dp=2,zero=2",
                                                   "dp=2,zero=3",
                                                   "dp=2,zero=3,recompute=full",
                                                   "dp=2,zero=1,mb=1",
                                                   "dp=2,zero=1,recompute=full",
                                                   "dp=2,zero=3,chunks=2",
                                                   "tp=2",
                                                   "tp=2,sp",
                                                   "tp=2,recompute=full",
                                                   "cp=ring:2",
                                                   "cp=ulysses:2",
                                                   "cp=gather:2",
                                                   "cp=gather:2,zero=1",
                                                   "ep=2",
                                                   "ep=2,zero=1",
                                                   "pp=2:gpipe",
                                                   "pp=2:1f1b",
                                                   "pp=2:interleaved:2",
                                                   "pp=2:zb-h1",
                                                   "pp=2:zb-v",
                                                   "pp=2:1f1b,recompute=full",
                                                   "dp=2,zero=1,offload=optimizer",
                                                   "dp=4",
                                                   "dp=4,zero=1",
                                                   "dp=4,zero=2",
                                                   "dp=4,zero=3",
                                                   "dp=4,zero=3,recompute=full",
                                                   "dp=2,tp=2",
                                                   "dp=2,tp=2,sp",
                                                   "dp=2,tp=2,zero=1",
                                                   "dp=2,tp=2,zero=3",
                                                   "tp=4",
                                                   "tp=4,sp",
                                                   "tp=2d:2x2",
                                                   "cp=ring:4",
                                                   "cp=ulysses:4",
                                                   "dp=2,cp=ring:2",
                                                   "dp=2,ep=2",
                                                   "dp=2,ep=2,zero=1",
                                                   "ep=4",
                                                   "dp=2,pp=2:1f1b",
                                                   "dp=2,pp=2:gpipe",
                                                   "dp=2,pp=2:1f1b,zero=1",
                                                   "tp=2,pp=2:1f1b",
                                                   "pp=4:gpipe",
                                                   "pp=4:1f1b",
                                                   "pp=4:zb-h1",
                                                   "dp=4,zero=1,recompute=full",
                                                   "dp=4,zero=3,mb=1"};

BackendRegistry& registry() {
  static BackendRegistry shared([] {
    RegistryOptions options;
    options.built_in = {tsr_cpu_backend_entry};
    options.plugin_path = test::plugin_folder();
    return options;
  }());
  return shared;
}

struct Runner {
  std::string strategy;
  double predicted_s = 0;
  int64_t arena_bytes = 0;
  std::unique_ptr<Session> session;
  std::vector<double> seconds, cpu_seconds;
};

Result<Graph> step_of(const Subject& subject) {
  TSR_ASSIGN_OR_RETURN(const ModelConfig config, parse_shorthand(subject.model));
  TSR_ASSIGN_OR_RETURN(Graph forward, build_model(config));
  TSR_RETURN_IF_ERROR(add_token_loss(forward));
  return make_training_step(forward, {});
}

HostTensor filled(const TensorType& type, const Initializer& initializer, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0F, static_cast<float>(std::max(initializer.stddev, 1e-3)));
  std::vector<float> values(static_cast<size_t>(type.shape.elements()));
  for (float& value : values)
    value = initializer.kind == Initializer::Kind::kOnes     ? 1
            : initializer.kind == Initializer::Kind::kNormal ? normal(random)
                                                             : 0;
  return HostTensor::copy_of<float>(type, values);
}

Status prepare_inputs(const Subject& subject, const Graph& step, Session& session) {
  uint32_t seed = 1;
  for (const TensorId id : step.tensors_of_kind(TensorKind::kParameter))
    TSR_RETURN_IF_ERROR(
        session.write(step.tensor(id).name, filled(step.type(id), initializer_for(step, id), seed++)));
  const TensorType ids{DType::kI32, {subject.batch, subject.tokens}};
  std::vector<int32_t> tokens, positions;
  for (int64_t i = 0; i < subject.batch * subject.tokens; ++i) {
    tokens.push_back(static_cast<int32_t>(i * 7 % 251));
    positions.push_back(static_cast<int32_t>(i % subject.tokens));
  }
  for (const TensorId id : step.tensors_of_kind(TensorKind::kInput)) {
    const std::string& name = step.tensor(id).name;
    const float value = name == "lr"           ? 1e-4F
                        : name == "loss_scale" ? 1.0F / static_cast<float>(tokens.size())
                                               : 1.0F;
    const HostTensor scalar = HostTensor::copy_of<float>({DType::kF32, {}}, std::span(&value, 1));
    const bool whole = name == "tokens" || name == "labels" || name == "positions";
    TSR_RETURN_IF_ERROR(session.feed(
        kEntry, name,
        whole ? HostTensor::copy_of<int32_t>(ids, name == "positions" ? positions : tokens) : scalar));
  }
  return {};
}

Result<std::unique_ptr<Session>> start(const Subject& subject, const Graph& step, const Plan& plan,
                                       std::shared_ptr<DeviceSet> devices, bool measure_memory,
                                       Program& program) {
  const EntrySpec entry{std::string(kEntry), &step, &plan};
  TSR_ASSIGN_OR_RETURN(program, lower(std::span(&entry, 1), devices->catalog()));
  TSR_ASSIGN_OR_RETURN(auto executable, Executable::prepare(std::move(devices), program));
  SessionOptions options;
  options.measure_memory = measure_memory;
  TSR_ASSIGN_OR_RETURN(auto session, Session::create(std::move(executable), options));
  TSR_RETURN_IF_ERROR(prepare_inputs(subject, step, *session));
  return session;
}

double cpu_now() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::ranges::sort(values);
  return values[values.size() / 2];
}

int64_t largest_arena(const Program& program) {
  int64_t bytes = 0;
  for (const RankProgram& rank : program.ranks) bytes = std::max(bytes, rank.arena_bytes);
  return bytes;
}

// A session opens as many devices as the program has ranks: others would only sit there.
Result<std::shared_ptr<DeviceSet>> devices_of(const Plan& plan) {
  int32_t ranks = 0;
  for (const Stage& stage : plan.stages)
    for (const int32_t device : stage.mesh.devices) ranks = std::max(ranks, device + 1);
  return DeviceSet::open(registry(), format("cpu:{}", ranks));
}

Result<Runner> runner_of(const Subject& subject, const Graph& step, const Plan& plan, std::string strategy,
                         const Cluster& cluster) {
  Runner runner;
  runner.strategy = std::move(strategy);
  Program program;
  TSR_ASSIGN_OR_RETURN(auto devices, devices_of(plan));
  TSR_ASSIGN_OR_RETURN(runner.session, start(subject, step, plan, devices, false, program));
  runner.arena_bytes = largest_arena(program);
  TSR_ASSIGN_OR_RETURN(const Simulation simulation, simulate(program, kEntry, cluster));
  runner.predicted_s = simulation.seconds();
  return runner;
}

Result<Plan> named_plan(const Subject& subject, const Graph& step, std::string_view words) {
  const std::vector<std::pair<std::string, int64_t>> symbols = {{"T", subject.tokens}};
  TSR_ASSIGN_OR_RETURN(const Graph bound, step.bind_partly(symbols));
  TSR_ASSIGN_OR_RETURN(const StrategyPins pins, parse_parallel(words));
  TSR_ASSIGN_OR_RETURN(Plan plan, apply_strategy(bound, pins.spec, subject.batch));
  plan.symbols = symbols;
  plan.graph_fingerprint = step.fingerprint();
  return plan;
}

double run_for(Session& session, int steps, Status& status) {
  const auto begin = std::chrono::steady_clock::now();
  for (int s = 0; s < steps && status.ok(); ++s) status = session.run(kEntry);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() / steps;
}

// Everyone takes turns. Machines change their speed for tenths of a second and more: turns are short, so that
// those of one round see the same, and a round has several of each.
Status take_turns(std::vector<Runner>& runners, int rounds) {
  constexpr int kTurns = 6, kSteps = 2;
  for (Runner& runner : runners) runner.seconds.clear(), runner.cpu_seconds.clear();
  Status status;
  for (int round = 0; round < rounds; ++round) {
    std::vector<std::vector<double>> turns(runners.size());
    std::vector<double> cpu(runners.size());
    for (int turn = 0; turn < kTurns; ++turn)
      for (size_t i = 0; i < runners.size(); ++i) {
        // The order turns, so that nobody always follows the same neighbour.
        const size_t at = (i + static_cast<size_t>(round + turn)) % runners.size();
        Session& session = *runners[at].session;
        run_for(session, 1, status);  // caches hold the neighbour's values
        const double before = cpu_now();
        turns[at].push_back(run_for(session, kSteps, status));
        cpu[at] += (cpu_now() - before) / (kSteps * kTurns);
        TSR_RETURN_IF_ERROR(status);
      }
    for (size_t i = 0; i < runners.size(); ++i) {
      runners[i].seconds.push_back(median(turns[i]));
      runners[i].cpu_seconds.push_back(cpu[i]);
    }
  }
  return {};
}

// The chosen one, runners[0], against the others: who a first look finds far behind stays out, a few rounds
// among the rest say who is fastest, and rounds of their own decide between those. Without the last, the best
// of many would be the luckiest, and beat its own equal.
Result<std::vector<Runner>> measure(std::vector<Runner> runners, int rounds) {
  Status status;
  for (Runner& runner : runners) {
    run_for(*runner.session, 1, status);
    runner.seconds = {run_for(*runner.session, 1, status)};
    for (int look = 0; look < 3; ++look)
      runner.seconds[0] = std::min(runner.seconds[0], run_for(*runner.session, 1, status));
    TSR_RETURN_IF_ERROR(status);
  }
  double least = runners[0].seconds[0];
  for (const Runner& runner : runners) least = std::min(least, runner.seconds[0]);
  constexpr double kFarBehind = 1.4;
  std::erase_if(
      runners, [&](const Runner& it) { return &it != runners.data() && it.seconds[0] > kFarBehind * least; });
  constexpr size_t kDecided = 5;
  if (runners.size() > kDecided) {
    constexpr int kFirstRounds = 3;
    TSR_RETURN_IF_ERROR(take_turns(runners, kFirstRounds));
    std::ranges::sort(runners.begin() + 1, runners.end(), {},
                      [](const Runner& it) { return median(it.seconds); });
  }
  std::vector<Runner> left;
  while (runners.size() > kDecided) {
    left.push_back(std::move(runners.back()));
    runners.pop_back();
  }
  for (Runner& runner : left) runner.session.reset();
  TSR_RETURN_IF_ERROR(take_turns(runners, rounds));
  std::ranges::move(left, std::back_inserter(runners));
  return runners;
}

struct Options {
  bool all = false;
  int rounds = 7;
  int32_t finalists = 1;
  std::vector<int64_t> only;
  std::shared_ptr<const DeviceProfile> profile;
};

// The ratio of the chosen plan to the best named strategy.
Result<double> run_setting(int64_t number, const Subject& subject, int32_t count, double share,
                           const Options& options) {
  TSR_ASSIGN_OR_RETURN(const Graph step, step_of(subject));
  TSR_ASSIGN_OR_RETURN(auto devices, DeviceSet::open(registry(), format("cpu:{}", count)));
  Cluster cluster = devices->cluster();
  cluster.profile = options.profile;
  int64_t limit = 0;
  if (share > 0) {
    TSR_ASSIGN_OR_RETURN(const Plan plan, named_plan(subject, step, format("dp={}", count)));
    const EntrySpec entry{std::string(kEntry), &step, &plan};
    TSR_ASSIGN_OR_RETURN(const Program program, lower(std::span(&entry, 1), devices->catalog()));
    limit = static_cast<int64_t>(static_cast<double>(largest_arena(program)) * share);
  }

  PlanOptions asked;
  asked.global_batch = subject.batch;
  asked.symbols = {{"T", subject.tokens}};
  asked.memory_limit = limit;
  asked.finalists = options.finalists;
  if (options.finalists > 1) asked.measure = measured_steps(devices, std::make_shared<const Graph>(step));
  const auto begin = std::chrono::steady_clock::now();
  TSR_ASSIGN_OR_RETURN(PlanResult chosen, make_plan(step, cluster, devices->catalog(), asked));
  const double plan_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();

  std::vector<Runner> runners;
  TSR_ASSIGN_OR_RETURN(Runner mine, runner_of(subject, step, chosen.plan, chosen.plan.strategy, cluster));
  // Touched bytes, by a session of its own: it poisons and scans its arenas.
  Program program;
  TSR_ASSIGN_OR_RETURN(auto used, devices_of(chosen.plan));
  TSR_ASSIGN_OR_RETURN(auto measuring, start(subject, step, chosen.plan, used, true, program));
  for (int s = 0; s < 2; ++s) TSR_RETURN_IF_ERROR(measuring->run(kEntry));
  bool exact = true;
  int64_t measured_bytes = 0;
  const std::vector<MemoryReport> memory = measuring->memory();
  for (size_t rank = 0; rank < memory.size(); ++rank) {
    exact &= memory[rank].measured_bytes == chosen.plan.estimate.arena_bytes[rank];
    measured_bytes = std::max(measured_bytes, memory[rank].measured_bytes);
  }
  measuring.reset();
  runners.push_back(std::move(mine));

  for (const std::string_view words : kStrategies) {
    const auto plan = named_plan(subject, step, words);
    if (!plan.ok()) continue;  // refused for this model
    const auto pins = parse_parallel(words);
    if (pins->spec.devices() > count) continue;
    auto runner = runner_of(subject, step, *plan, std::string(words), cluster);
    if (!runner.ok() || (limit > 0 && runner->arena_bytes > limit)) continue;
    runners.push_back(std::move(*runner));
  }
  TSR_ASSIGN_OR_RETURN(runners, measure(std::move(runners), options.rounds));

  size_t best = 1;
  for (size_t i = 1; i < runners.size(); ++i)
    if (runners[i].session && median(runners[i].seconds) < median(runners[best].seconds)) best = i;
  const bool alone = runners.size() == 1;
  const double own = median(runners[0].seconds), other = alone ? own : median(runners[best].seconds);
  std::printf(
      "%2d  %-48s cpu:%d %10s  %-34s %8.3f ms %8.3f ms  %9s%s  %-28s %8.3f ms  %5.3f  gap %.3g, %.2f s\n",
      static_cast<int>(number), subject.model.c_str(), count, limit > 0 ? bytes_text(limit).c_str() : "-",
      chosen.plan.strategy.c_str(), chosen.plan.estimate.step_time_s * 1e3, own * 1e3,
      bytes_text(measured_bytes).c_str(), exact ? "" : " NOT AS PREDICTED",
      alone ? "none fits" : runners[best].strategy.c_str(), other * 1e3, own / other,
      chosen.plan.estimate.gap, plan_s);
  if (options.all) {
    std::ranges::sort(runners, {}, [](const Runner& it) { return median(it.seconds); });
    for (const Runner& it : runners)
      std::printf("      %-34s predicted %8.3f  measured %8.3f  cpu %8.3f ms  x%.2f  arena %s\n",
                  it.strategy.c_str(), it.predicted_s * 1e3, median(it.seconds) * 1e3,
                  median(it.cpu_seconds) * 1e3, it.predicted_s / median(it.seconds),
                  bytes_text(it.arena_bytes).c_str());
  }
  std::fflush(stdout);
  return exact ? own / other : -1;
}

int run(const Options& options) {
  int64_t number = 0, good = 0, ran = 0;
  for (const Subject& subject : kSubjects)
    for (const auto& [count, share] : kDevices) {
      ++number;
      if (!options.only.empty() && std::ranges::find(options.only, number) == options.only.end()) continue;
      ++ran;
      const Result<double> ratio = run_setting(number, subject, count, share, options);
      if (!ratio.ok())
        std::printf("%2d  %s: %s\n", static_cast<int>(number), subject.model.c_str(),
                    ratio.status().to_string().c_str());
      good += ratio.ok() && *ratio > 0 && *ratio <= 1.15;
    }
  std::printf(
      "%d of %d settings: the chosen plan within 15 %% of the best named strategy, its arena as "
      "predicted to the byte\n",
      static_cast<int>(good), static_cast<int>(ran));
  return good == ran ? 0 : 1;
}

}  // namespace
}  // namespace tessera

namespace tessera {
namespace {

Result<std::shared_ptr<const DeviceProfile>> read_profile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return Status(StatusCode::kNotFound, format("cannot open profile '{}'", path));
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  TSR_ASSIGN_OR_RETURN(DeviceProfile profile, device_profile_from_json(text));
  return std::make_shared<const DeviceProfile>(std::move(profile));
}

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) {
  tessera::Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (word == "--all") options.all = true;
    if (word == "--rounds" && i + 1 < argc) options.rounds = std::max(1, std::atoi(argv[++i]));
    if (word == "--measure" && i + 1 < argc) options.finalists = std::max(1, std::atoi(argv[++i]));
    if (word == "--profile" && i + 1 < argc) {
      auto profile = tessera::read_profile(argv[++i]);
      if (!profile.ok()) {
        std::fprintf(stderr, "plan_choice: %s\n", profile.status().to_string().c_str());
        return 2;
      }
      options.profile = std::move(*profile);
    }
    if (word == "--only" && i + 1 < argc)
      for (const std::string& part : tessera::split(argv[++i], ','))
        options.only.push_back(tessera::parse_i64(part).value_or(0));
    if (word == "--help") {
      std::puts("plan_choice [--profile FILE] [--measure N] [--all] [--only N,N,...] [--rounds N]");
      return 0;
    }
  }
  return tessera::run(options);
}
