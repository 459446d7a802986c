// How long planning takes, and how much memory: medians of several runs, each case in a process of its own.
// Arguments: how many runs (default 5), and a part of the names of the cases to run (default all).
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "graph/base/text.h"
#include "parallel/analytic/step_certificate.h"
#include "parallel/planner/operation_plan.h"
#include "parallel/pricing/cluster_presets.h"
#include "tests/parallel/fake_catalog.h"

using namespace tessera;

namespace {

struct Case {
  std::string name;
  double aim_s;
  std::function<std::string()> plan;  // says what was found
};

std::string searched(const char* model, const char* cluster, int64_t batch) {
  StepSearchOptions options;
  options.global_batch = batch;
  options.wide = true;
  const auto found =
      search_step(*transformer_shape(*parse_shorthand(model)), *cluster_preset(cluster), options);
  if (!found.ok()) return std::string(found.status().message());
  char gap[64];
  std::snprintf(gap, sizeof gap, "%.3f s a step, gap %.3f %%", found->best.time.step_s, 100 * found->gap);
  return format("{}, {} of {} configurations solved, {}", gap, found->solved, found->configurations,
                to_text(found->best.plan));
}

// Blocks of a residual branch, a gated branch and their sum.
Graph branching(int64_t operations) {
  Graph graph;
  const auto must = [](auto result) {
    if (!result.ok()) std::fprintf(stderr, "%s\n", result.status().to_string().c_str()), std::exit(1);
    return *result;
  };
  const auto weight = [&](int64_t k, int64_t n) {
    return must(graph.add_tensor(format("w{}", graph.tensors().size()), {DType::kF32, {k, n}},
                                 TensorKind::kParameter));
  };
  constexpr int64_t kTokens = 4096, kWidth = 1024;
  TensorId x = must(graph.add_tensor("x", {DType::kF32, {kTokens, kWidth}}, TensorKind::kInput));
  while (static_cast<int64_t>(graph.nodes().size()) + 6 <= operations) {
    const TensorId up = must(graph.add("matmul", {x, weight(kWidth, 4 * kWidth)}));
    const TensorId gate = must(graph.add("matmul", {x, weight(kWidth, 4 * kWidth)}));
    const TensorId bent = must(graph.add("silu", {gate}));
    const TensorId both = must(graph.add("mul", {up, bent}));
    const TensorId down = must(graph.add("matmul", {both, weight(4 * kWidth, kWidth)}));
    x = must(graph.add("add", {x, down}));
  }
  if (!graph.add_output("y", x).ok()) std::exit(1);
  return graph;
}

std::string by_operation(int64_t operations, const char* mesh_text, double budget_share) {
  const Graph graph = branching(operations);
  const DeviceMesh mesh = *parse_mesh(mesh_text);
  Cluster cluster;
  cluster.kinds.resize(1);
  cluster.kinds[0].memory_bytes_per_s = 1e12;
  cluster.devices.assign(static_cast<size_t>(mesh.size()), 0);
  cluster.link = {1e11, 1e-6};
  const FakeCatalog catalog;
  auto found = plan_operations(graph, mesh, cluster, catalog, INT64_MAX);
  if (found.ok() && budget_share < 1)
    found = plan_operations(graph, mesh, cluster, catalog,
                            static_cast<int64_t>(budget_share * static_cast<double>(found->bytes)));
  if (!found.ok()) return std::string(found.status().message());
  return format("{} operations, {} s, {} proved: {}", graph.nodes().size(), found->seconds,
                bytes_text(found->bytes), found->proved);
}

}  // namespace

int main(int argc, char** argv) {
  const int runs = argc > 1 ? std::atoi(argv[1]) : 5;
  const char* gpt3 = "gpt2:L=96,C=12288,H=96,V=51200,T=2048";
  const char* llama = "llama:L=126,C=16384,H=128,KV=8,F=53248,V=128256,T=8192";
  std::vector<Case> cases = {
      {"GPT-3 175B, 1,024 A100", 1, [=] { return searched(gpt3, "dgx-a100-80gb:1024", 1536); }},
      {"Llama 3 405B, 16,384 H100", 2, [=] { return searched(llama, "dgx-h100:16384", 2048); }},
      {"60 branching operations, 8", 1, [] { return by_operation(60, "tp=8", 1); }},
      {"the same, 2 x 4", 1, [] { return by_operation(60, "dp=2, tp=4", 1); }},
      {"the same, 2 x 4, 80 % of it", 1, [] { return by_operation(60, "dp=2, tp=4", 0.8); }},
  };
  for (const int layers : {24, 96, 250, 500, 1000})
    cases.push_back({format("{} layers of 4096, 256 H100", layers), 1, [=] {
                       const std::string model = format("gpt2:L={},C=4096,H=32,V=51200,T=2048", layers);
                       return searched(model.c_str(), "dgx-h100:256", 256);
                     }});
  for (const int layers : {24, 96, 250, 500, 1000})
    cases.push_back({format("{} layers of 2048, 256 H100", layers), 1, [=] {
                       const std::string model = format("gpt2:L={},C=2048,H=16,V=51200,T=2048", layers);
                       return searched(model.c_str(), "dgx-h100:256", 512);
                     }});
  for (const int layers : {24, 96, 250, 500, 1000})
    cases.push_back({format("{} layers of 4096, 64 A100", layers), 1, [=] {
                       const std::string model = format("gpt2:L={},C=4096,H=32,V=51200,T=2048", layers);
                       return searched(model.c_str(), "dgx-a100-80gb:64", 256);
                     }});
  std::printf("%-28s %9s %9s %9s %9s  %s\n", "case", "median s", "cpu s", "aim s", "peak MiB", "found");
  for (const Case& it : cases) {
    if (argc > 2 && it.name.find(argv[2]) == std::string::npos) continue;
    std::fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
      std::vector<double> seconds;
      std::string found;
      for (int run = 0; run < runs; ++run) {
        const auto start = std::chrono::steady_clock::now();
        found = it.plan();
        seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
      }
      std::ranges::sort(seconds);
      rusage used{};
      getrusage(RUSAGE_SELF, &used);
      // Of all threads; the median tells more on an idle machine, this on any.
      const double processor =
          (static_cast<double>(used.ru_utime.tv_sec) + 1e-6 * static_cast<double>(used.ru_utime.tv_usec)) /
          runs;
      std::printf("%-28s %9.3f %9.3f %9.1f %9.1f  %s\n", it.name.c_str(), seconds[seconds.size() / 2],
                  processor, it.aim_s, static_cast<double>(used.ru_maxrss) / 1024, found.c_str());
      std::fflush(stdout);
      _exit(0);
    }
    int status = 0;
    if (child < 0 || waitpid(child, &status, 0) != child || status != 0) return 1;
  }
}
