// The smallest that fits, named where nothing does: the limit, and the number of devices, found by planning again.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "graph/base/result.h"
#include "graph/cluster.h"
#include "parallel/planner/planner.h"

namespace tessera {

// SmallestLimit: the least bytes of a device that were found to suffice.
struct SmallestLimit {
  std::string entries;  // planned together: " for train_step and eval"; empty: a single plan
  int64_t given = 0, bytes = 0;
  bool is_exact = true;  // no smaller one suffices
  std::string strategy;
  std::string more;  // sentences: what fills the device, how many would do
};
// kOutOfMemory: "no plan fits 80.00 GiB a device; the smallest limit that works is ... (... bytes) with '...'. ...", with
// the numbers "needed_bytes", "limit_bytes" and "smallest_limit_bytes".
Status nothing_fits(const SmallestLimit& smallest);

struct DeviceCounts {
  int32_t given = 1, most = 16;  // given: too few; most: largest count tried
  // Plans may leave devices idle, so more devices never hurt:
  // counts are doubled, then bisected. Otherwise each is tried.
  bool is_monotone = true;
};

// Budget of lowered instructions for searches over device counts: some seconds of a core.
inline constexpr SearchEffort kAdviceEffort{1'500'000};

// The cluster with `count` devices, adding or removing ones like its last.
inline Cluster with_devices(Cluster cluster, int32_t count) {
  cluster.devices.resize(static_cast<size_t>(count), cluster.devices.back());
  return cluster;
}

// A cheap verdict on a device count; if unknown, `fits` decides.
using LikelyToFit = std::function<Result<Fit>(int32_t)>;
// nullopt: undecided, since the effort is spent.
using FitsDevices = std::function<Result<std::optional<bool>>(int32_t)>;

// MinDeviceCount: `count` fits, and one fewer does not. If the effort is spent: `too_few` do not fit.
struct MinDeviceCount {
  std::optional<int32_t> count;
  int32_t too_few = 0;
  bool is_open = false;
};
Result<MinDeviceCount> find_min_device_count(const DeviceCounts& counts, const LikelyToFit& likely, const FitsDevices& fits);

// `refused` with the count found: a sentence at its end, and the number "smallest_devices".
Status with_device_count(const Status& refused, const MinDeviceCount& found, const DeviceCounts& counts,
                         const std::string& strategy = {});

// For a refusal of make_plan: plans again under the same limit, with other numbers of devices of the same kind.
Status with_device_advice(const Status& refused, const Graph& graph, const Cluster& cluster, const KernelCatalog& catalog,
                          const PlanOptions& options);

}  // namespace tessera
