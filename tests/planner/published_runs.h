// Training steps on GPUs that others measured and published, each with the set-up that its source states:
// none of them was fitted. Plain data for a test and a bench.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "baseline_forecast.h"
#include "graph/base/result.h"
#include "graph/cluster.h"

namespace tessera::planner_test {

struct PublishedRun {
  std::string_view source;  // see kSources
  const char* model;
  const char* cluster;
  int64_t batch;
  const char* parallel;
  double seconds = 0;    // measured; 0 where the source gives
  double teraflops = 0;  // a device, by the source's count of operations
};

struct PublishedSource {
  std::string_view name;
  BaselineSoftware software;
  double network_gbytes = 0;  // out of a node, where it is not the preset's
  bool ends_are_blocks;       // stages count embedding and head as a block each
};

std::span<const PublishedRun> published_runs();
const PublishedSource& source_of(const PublishedRun& run);

// Seconds a step took.
double measured_seconds(const PublishedRun& run);
// The forecast with the built-in tables.
Result<double> forecast(const PublishedRun& run);

}  // namespace tessera::planner_test
