// How long planning takes of devices that are absent, and how much memory: medians of several runs, each case in a process of its own.
// Arguments: how many runs (default 5), and a part of the names of the cases to run (default all).
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "graph/base/text.h"
#include "graph/models/model_family.h"
#include "graph/transform/fewer_blocks.h"
#include "graph/transform/precision.h"
#include "graph/transform/training.h"
#include "parallel/planner/composed_search.h"
#include "parallel/pricing/absent_catalog.h"
#include "parallel/pricing/cluster_presets.h"
#include "parallel/pricing/reserved_memory.h"

using namespace tessera;

namespace {

struct Case {
  std::string name;
  std::function<std::string()> plan;  // says what was found
};

Result<ComposedModel> composed(const char* model) {
  TSR_ASSIGN_OR_RETURN(const ModelConfig config, parse_shorthand(model));
  TSR_ASSIGN_OR_RETURN(const Graph forward, build_model(config));
  TSR_ASSIGN_OR_RETURN(FewerBlocks few, with_fewer_blocks(forward));
  TSR_RETURN_IF_ERROR(add_token_loss(few.graph));
  TSR_ASSIGN_OR_RETURN(const Graph mixed, with_mixed_precision(few.graph, DType::kBF16));
  TrainingOptions options;
  options.clip_norm = 1;
  TSR_ASSIGN_OR_RETURN(Graph step, make_training_step(mixed, options));
  return ComposedModel{std::move(step), std::move(few.like), {{"T", config.sizes.at("T")}}};
}

std::string searched(const char* model, const char* preset, int64_t batch) {
  const Result<ComposedModel> it = composed(model);
  if (!it.ok()) return std::string(it.status().message());
  const Cluster cluster = *cluster_preset(preset);
  const DeviceKind& kind = cluster.kinds[0];
  const ComposedSearchOptions options{
      .parallel = {},
      .global_batch = batch,
      .tokens = it->symbols[0].second,
      .memory_limit = kind.memory_bytes - kind.memory_bytes / 100 - reserved_bytes(kind)};
  const auto found = search_composed(*it, cluster, AbsentCatalog(kind), options);
  if (!found.ok()) return std::string(found.status().message());
  char text[96];
  std::snprintf(text, sizeof text, "%.3f s a step, gap %.3f %%, %.2f GiB", found->plan.time.step_s,
                100 * found->search.gap, static_cast<double>(found->plan.most_bytes()) / (1 << 30));
  return format("{}, {} of {} configurations composed, {}", text, found->search.solved,
                found->search.configurations, to_text(found->plan.spec));
}

}  // namespace

int main(int argc, char** argv) {
  const int runs = argc > 1 ? std::atoi(argv[1]) : 5;
  const char* gpt3 = "gpt2:L=96,C=12288,H=96,V=51200,T=2048";
  const char* llama = "llama:L=126,C=16384,H=128,KV=8,F=53248,V=128256,T=8192";
  const char* experts = "moe:L=56,C=6144,H=48,F=8192,V=32768,T=4096,E=128,K=8";
  std::vector<Case> cases = {
      {"GPT-3 175B, 1,024 A100", [=] { return searched(gpt3, "dgx-a100-80gb:1024", 1536); }},
      {"Llama 3 405B, 16,384 H100", [=] { return searched(llama, "dgx-h100:16384", 2048); }},
      {"experts 720B, 1,024 B200", [=] { return searched(experts, "dgx-b200:1024", 1024); }},
      {"Llama 8B, 8 H100",
       [=] { return searched("llama:L=32,C=4096,H=32,KV=8,F=14336,V=128256,T=8192", "dgx-h100:8", 64); }},
  };
  for (const int layers : {24, 96, 250, 500, 1000})
    cases.push_back({format("{} layers of 4096, 256 H100", layers), [=] {
                       const std::string model = format("gpt2:L={},C=4096,H=32,V=51200,T=2048", layers);
                       return searched(model.c_str(), "dgx-h100:256", 256);
                     }});
  std::printf("%-28s %9s %9s %9s  %s\n", "case", "median s", "cpu s", "peak MiB", "found");
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
      // CPU time of all threads; the median says more on an idle machine, this on any.
      const double processor =
          (static_cast<double>(used.ru_utime.tv_sec) + 1e-6 * static_cast<double>(used.ru_utime.tv_usec)) /
          runs;
      std::printf("%-28s %9.3f %9.3f %9.1f  %s\n", it.name.c_str(), seconds[seconds.size() / 2], processor,
                  static_cast<double>(used.ru_maxrss) / 1024, found.c_str());
      std::fflush(stdout);
      _exit(0);
    }
    int status = 0;
    if (child < 0 || waitpid(child, &status, 0) != child || status != 0) return 1;
  }
}
