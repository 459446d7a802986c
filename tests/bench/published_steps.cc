// Forecasts against published training steps (tests/planner/published_runs.cc), with the built-in tables:
// every row, and by source the mean, the median and the worst error. Argument: a part of the sources' names
// (default all).
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tests/planner/published_runs.h"

using namespace tessera;
using namespace tessera::planner_test;

int main(int argc, char** argv) {
  std::map<std::string, std::vector<double>, std::less<>> errors;
  for (const PublishedRun& run : published_runs()) {
    if (argc > 1 && run.source.find(argv[1]) == std::string_view::npos) continue;
    const auto time = forecast(run);
    if (!time.ok()) {
      std::fprintf(stderr, "%s\n", time.status().to_string().c_str());
      return 1;
    }
    const double measured = measured_seconds(run), error = *time / measured - 1;
    errors[std::string(run.source)].push_back(error);
    std::printf("%-28.*s %-55s %-20s %5lld %-52s %8.2f s, forecast %8.2f s %+6.1f %%\n",
                static_cast<int>(run.source.size()), run.source.data(), run.model, run.cluster,
                static_cast<long long>(run.batch), run.parallel, measured, *time, 100 * error);
  }
  for (auto& [source, all] : errors) {
    double mean = 0;
    for (const double error : all) mean += error / static_cast<double>(all.size());
    std::ranges::sort(all, {}, [](double error) { return std::abs(error); });
    const size_t half = all.size() / 2;
    const double median = (std::abs(all[half]) + std::abs(all[all.size() - 1 - half])) / 2;
    std::printf("%-28s %3zu rows, mean %+5.1f %%, median %4.1f %%, worst %+5.1f %%\n", source.c_str(),
                all.size(), 100 * mean, 100 * median, 100 * all.back());
  }
}
