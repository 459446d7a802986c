#include "kernel_times.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <set>
#include <tuple>
#include <vector>

namespace cli {

namespace {

using Key = std::tuple<std::string, std::string, std::string>;  // op, variant, operands
struct Sum {
  int64_t count = 0, launches = 0;
  double seconds = 0, floor_s = 0;
};
using Sums = std::map<Key, Sum>;

double floor_seconds(const Json& arguments, const Ceilings& ceilings) {
  const double by_memory =
      ceilings.bytes_per_s > 0 ? arguments.value("memory_bytes", 0.0) / ceilings.bytes_per_s : 0;
  const double by_products =
      ceilings.flops_per_s > 0 ? arguments.value("flops", 0.0) / ceilings.flops_per_s : 0;
  return std::max(by_memory, by_products);
}

double total_seconds(const Sums& sums) {
  double total = 0;
  for (const auto& [key, sum] : sums) total += sum.seconds;
  return total;
}

}  // namespace

Json kernel_times(const std::string& trace, const std::string& entry, const Ceilings& ceilings) {
  std::map<int64_t, Sums> ranks;
  std::map<std::pair<int64_t, int64_t>, Sum*> launched;  // of a rank's stream: the last that took time
  std::map<std::string, int64_t> first_seen;             // runs are counted by the first instruction's name
  std::string first;
  int64_t first_rank = -1;
  for (const Json& event : Json::parse(trace)) {
    if (event["ph"] != "X" || event["args"].value("entry", "") != entry) continue;
    const Json& arguments = event["args"];
    const auto rank = event["pid"].get<int64_t>();
    const std::string name = event["name"];
    if (first_rank < 0) first_rank = rank;
    if (rank == first_rank)
      ++first_seen[name + " #" + std::to_string(arguments["micro_batch"].get<int64_t>())];
    const bool is_kernel = arguments.contains("variant");
    const Key key(name.substr(0, name.find(' ')), is_kernel ? arguments["variant"].get<std::string>() : "",
                  is_kernel ? arguments["operands"].get<std::string>() : "");
    const double seconds = event["dur"].get<double>() * 1e-6;
    Sum*& last = launched[{rank, event["tid"].get<int64_t>()}];
    if (seconds > 0 || last == nullptr) {
      last = &ranks[rank][key];
      ++last->launches;
    }
    ++last->count;
    last->seconds += seconds;
    if (is_kernel) last->floor_s += floor_seconds(arguments, ceilings);
  }
  // Most names come once a run.
  std::map<int64_t, int64_t> times_seen;
  for (const auto& [name, count] : first_seen) ++times_seen[count];
  int64_t runs = 1, most = 0;
  for (const auto& [count, names] : times_seen)
    if (names > most) std::tie(runs, most) = std::pair(count, names);

  const Sums* busiest = nullptr;
  for (const auto& [rank, sums] : ranks)
    if (busiest == nullptr || total_seconds(sums) > total_seconds(*busiest)) busiest = &sums;
  Json kernels = Json::array();
  double seconds = 0, floor_s = 0;
  int64_t launches = 0;
  const double per_run = 1.0 / static_cast<double>(runs);
  if (busiest != nullptr)
    for (const auto& [key, sum] : *busiest) {
      kernels.push_back({{"op", std::get<0>(key)},
                         {"variant", std::get<1>(key)},
                         {"operands", std::get<2>(key)},
                         {"count", sum.count / runs},
                         {"seconds", sum.seconds * per_run},
                         {"floor_seconds", sum.floor_s * per_run}});
      seconds += sum.seconds * per_run;
      floor_s += sum.floor_s * per_run;
      launches += sum.launches;
    }
  std::stable_sort(kernels.begin(), kernels.end(),
                   [](const Json& a, const Json& b) { return a["seconds"] > b["seconds"]; });
  return {{"entry", entry},
          {"runs", runs},
          {"seconds", seconds},
          {"floor_seconds", floor_s},
          {"launches", launches / runs},
          {"kernels", kernels}};
}

double product_seconds(const Json& times) {
  double seconds = 0;
  for (const Json& kernel : times["kernels"])
    if (kernel["op"].get<std::string>().find("matmul") != std::string::npos)
      seconds += kernel["seconds"].get<double>();
  return seconds;
}

std::string kernel_table(const Json& times, size_t rows) {
  const double total = times["seconds"];
  std::string table;
  char line[256];
  const auto add = [&](int64_t count, double seconds, double floor_s, const std::string& what) {
    std::snprintf(line, sizeof line, "%5lld %10.1f us %10.1f us %4.0f %% %5.1f %%  %s\n",
                  static_cast<long long>(count), seconds * 1e6, floor_s * 1e6,
                  seconds > 0 ? 100 * floor_s / seconds : 0, total > 0 ? 100 * seconds / total : 0,
                  what.c_str());
    table += line;
  };
  table += "count         time         floor  reach   share  kernel of " + times["entry"].get<std::string>() +
           '\n';
  size_t shown = 0;
  int64_t other_count = 0;
  double other_s = 0, other_floor_s = 0;
  for (const Json& kernel : times["kernels"]) {
    if (shown++ < rows) {
      const std::string variant = kernel["variant"];
      add(kernel["count"], kernel["seconds"], kernel["floor_seconds"],
          kernel["op"].get<std::string>() + (variant.empty() ? "" : " (" + variant + ")") + " " +
              kernel["operands"].get<std::string>().substr(0, 44));
      continue;
    }
    other_count += kernel["count"].get<int64_t>();
    other_s += kernel["seconds"].get<double>();
    other_floor_s += kernel["floor_seconds"].get<double>();
  }
  if (other_count > 0) add(other_count, other_s, other_floor_s, "others");
  add(times["launches"], total, times["floor_seconds"], "all (count: launches)");
  return table;
}

}  // namespace cli
