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
#include "parallel/analytic/step_search.h"
#include "parallel/pricing/cluster_presets.h"

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

}  // namespace

int main(int argc, char** argv) {
  const int runs = argc > 1 ? std::atoi(argv[1]) : 5;
  const char* gpt3 = "gpt2:L=96,C=12288,H=96,V=51200,T=2048";
  const char* llama = "llama:L=126,C=16384,H=128,KV=8,F=53248,V=128256,T=8192";
  std::vector<Case> cases = {
      {"GPT-3 175B, 1,024 A100", 1, [=] { return searched(gpt3, "dgx-a100-80gb:1024", 1536); }},
      {"Llama 3 405B, 16,384 H100", 2, [=] { return searched(llama, "dgx-h100:16384", 2048); }},
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
