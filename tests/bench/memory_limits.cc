// What does a memory limit cost? For several models, devices and limits (shares of what data parallelism
// over all devices takes): the plan, its step, the gap, what was lowered and how long planning took.
//   memory_limits [MODEL BATCH TOKENS]
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string>
#include <vector>

#include "graph/base/text.h"
#include "parallel/planner/planner.h"
#include "tests/parallel/step_graphs.h"

namespace tessera {
namespace {

struct Subject {
  std::string model;
  int64_t batch, tokens;
};

const std::vector<Subject> kSubjects = {
    {"gpt2:L=4,C=64,H=4,V=256,T=64", 8, 64},
    {"gpt2:L=12,C=128,H=4,V=512,T=128", 8, 128},
    {"llama:L=4,C=96,H=6,KV=2,F=256,V=1024,T=128", 8, 128},
    {"encoder:L=3,C=128,H=4,V=512,T=64", 8, 64},
    {"moe:L=2,C=128,H=4,KV=4,F=256,E=4,K=2,V=512,T=64", 8, 64},
};

Cluster cluster_of(int32_t devices, bool shares) {
  Cluster cluster;
  cluster.kinds.push_back({"fake", int64_t{1} << 40, 1e11, 1e10, 1e-6});
  cluster.devices.assign(static_cast<size_t>(devices), 0);
  cluster.shared_cores = shares ? 2 : 0;
  cluster.link = {5e9, 5e-6};
  return cluster;
}

Status run(const Subject& subject, int32_t devices, bool shares) {
  TSR_ASSIGN_OR_RETURN(const Graph step, training_step(subject.model));
  TSR_ASSIGN_OR_RETURN(const Program data,
                       program_of(step, format("dp={}", devices), subject.batch, subject.tokens));
  const auto whole = static_cast<double>(data.ranks[0].arena_bytes);
  for (const double share : {1.0, 0.95, 0.8, 0.6, 0.5, 0.4}) {
    PlanOptions options;
    options.global_batch = subject.batch;
    options.symbols = {{"T", subject.tokens}};
    options.memory_limit = static_cast<int64_t>(share * whole);
    options.advise = false;
    const std::clock_t begin = std::clock();  // processor time: other work on the machine does not count
    const auto planned = make_plan(step, cluster_of(devices, shares), FakeCatalog(), options);
    const double took = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
    std::printf("%-50s %d%s %3.0f %% ", subject.model.c_str(), devices, shares ? "s" : " ", 100 * share);
    if (!planned.ok()) {
      std::printf("nothing fits, %.2f s\n", took);
      continue;
    }
    const Plan& plan = planned->plan;
    const auto largest = static_cast<double>(std::ranges::max(plan.estimate.arena_bytes));
    std::printf(
        "%9.3f ms  gap %.3f  %3.0f %% of the limit  %4lld came up %3lld lowered  %.2f s  %s (%zu again)\n",
        1e3 * plan.estimate.step_time_s, planned->search.gap,
        100 * largest / static_cast<double>(options.memory_limit),
        static_cast<long long>(planned->search.configurations),
        static_cast<long long>(planned->search.solved), took, plan.strategy.c_str(), plan.recompute.size());
  }
  return {};
}

int main_of(int argc, char** argv) {
  std::vector<Subject> subjects = kSubjects;
  if (argc == 4) subjects = {{argv[1], std::atoll(argv[2]), std::atoll(argv[3])}};
  for (const Subject& subject : subjects)
    for (const int32_t devices : {2, 4})
      for (const bool shares : {false, true}) {
        if (shares && devices > 2) continue;
        if (const Status status = run(subject, devices, shares); !status.ok()) {
          std::printf("%s\n", std::string(status.message()).c_str());
          return 1;
        }
      }
  return 0;
}

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) { return tessera::main_of(argc, argv); }
