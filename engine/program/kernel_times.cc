#include "engine/program/kernel_times.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "graph/base/text.h"
#include "text/json.h"

namespace tessera {
namespace {

// The device's peak rates; 0 where unknown.
struct Ceilings {
  double bytes_per_s = 0;  // of a large copy, read and written
  double flops_per_s = 0;  // of a large product
};

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

// The runs of an entry in a trace: sums of each rank's kernels, and the number of runs.
struct Runs {
  std::map<int64_t, Sums> ranks;
  int64_t count = 1;
};

Runs read_runs(const Json& trace, const std::string& entry, const Ceilings& ceilings) {
  Runs runs;
  std::map<std::pair<int64_t, int64_t>, Sum*> launched;  // of a rank's stream: the last one with a duration
  std::map<std::string, int64_t> first_seen;             // runs are counted by the names of the first rank
  int64_t first_rank = -1;
  for (const Json& event : trace) {
    if (event["ph"] != "X" || event["args"].value("entry", "") != entry) continue;
    const Json& arguments = event["args"];
    const auto rank = event["pid"].get<int64_t>();
    const std::string name = event["name"];
    if (first_rank < 0) first_rank = rank;
    if (rank == first_rank) ++first_seen[format("{} #{}", name, arguments["micro_batch"].get<int64_t>())];
    const bool is_kernel = arguments.contains("variant");
    const Key key(name.substr(0, name.find(' ')), is_kernel ? arguments["variant"].get<std::string>() : "",
                  is_kernel ? arguments["operands"].get<std::string>() : "");
    const double seconds = event["dur"].get<double>() * 1e-6;
    Sum*& last = launched[{rank, event["tid"].get<int64_t>()}];
    if (seconds > 0 || last == nullptr) {
      last = &runs.ranks[rank][key];
      ++last->launches;
    }
    ++last->count;
    last->seconds += seconds;
    if (is_kernel) last->floor_s += floor_seconds(arguments, ceilings);
  }
  // Most names occur once a run.
  std::map<int64_t, int64_t> times_seen;
  for (const auto& [name, count] : first_seen) ++times_seen[count];
  int64_t most = 0;
  for (const auto& [count, names] : times_seen)
    if (names > most) std::tie(runs.count, most) = std::pair(count, names);
  return runs;
}

}  // namespace

Result<std::string> kernel_times_json(std::string_view trace, const Options& options) {
  OptionReader reader(options, "trace");
  const std::string entry = reader.text("entry", "train_step");
  const Ceilings ceilings{reader.f64("bytes_per_s", 0, 0), reader.f64("flops_per_s", 0, 0)};
  TSR_RETURN_IF_ERROR(reader.finish());
  TSR_ASSIGN_OR_RETURN(const Json events, parse_json(trace, "trace", size_t{1} << 32));
  const Runs runs = read_runs(events, entry, ceilings);
  const Sums* busiest = nullptr;
  for (const auto& [rank, sums] : runs.ranks)
    if (busiest == nullptr || total_seconds(sums) > total_seconds(*busiest)) busiest = &sums;
  Json kernels = Json::array();
  double seconds = 0, floor_s = 0;
  int64_t launches = 0;
  const double per_run = 1.0 / static_cast<double>(runs.count);
  for (const auto& [key, sum] : busiest == nullptr ? Sums() : *busiest) {
    const auto& [op, variant, operands] = key;
    kernels.push_back({{"op", op},
                       {"variant", variant},
                       {"operands", operands},
                       {"count", sum.count / runs.count},
                       {"seconds", sum.seconds * per_run},
                       {"floor_seconds", sum.floor_s * per_run}});
    seconds += sum.seconds * per_run;
    floor_s += sum.floor_s * per_run;
    launches += sum.launches;
  }
  std::stable_sort(kernels.begin(), kernels.end(),
                   [](const Json& a, const Json& b) { return a["seconds"] > b["seconds"]; });
  return dump({{"entry", entry},
               {"runs", runs.count},
               {"seconds", seconds},
               {"floor_seconds", floor_s},
               {"launches", launches / runs.count},
               {"kernels", kernels}});
}

}  // namespace tessera
