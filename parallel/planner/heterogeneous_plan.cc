#include "parallel/planner/heterogeneous_plan.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "graph/base/text.h"
#include "parallel/pricing/worst_case_kind.h"

namespace tessera {

namespace {

constexpr size_t kMostTogether = 4;  // kinds whose combinations are all planned; with more, each alone, and all

const DeviceKind& kind_of(const Cluster& cluster, size_t device) {
  return cluster.kinds[static_cast<size_t>(cluster.devices[device])];
}

struct Part {
  Cluster cluster;               // of one kind
  std::vector<int32_t> devices;  // indices among the given devices
  std::set<size_t> kinds;
};

// Forms nodes of the remaining devices if every node has equally many; else
// each device is a node, with its share of the fullest node's network.
void set_nodes(Part& part) {
  const int32_t whole = part.cluster.node_devices;
  if (whole == 0) return;
  std::map<int32_t, int32_t> counts;
  for (const int32_t device : part.devices) ++counts[device / whole];
  int32_t least = INT32_MAX, most = 1;
  for (const auto& [node, count] : counts) least = std::min(least, count), most = std::max(most, count);
  const bool even = least == most;
  part.cluster.node_devices = even ? most : 1;
  if (!even) part.cluster.network.bytes_per_s /= most;
}

std::vector<Part> parts_of(const Cluster& cluster) {
  std::vector<DeviceKind> kinds;
  std::vector<size_t> of_device;
  for (size_t d = 0; d < cluster.devices.size(); ++d) {
    const auto same = std::ranges::find_if(
        kinds, [&](const DeviceKind& kind) { return is_same_kind(kind, kind_of(cluster, d)); });
    of_device.push_back(static_cast<size_t>(same - kinds.begin()));
    if (same == kinds.end()) kinds.push_back(kind_of(cluster, d));
  }
  std::vector<std::set<size_t>> choices;
  std::set<size_t> all;
  for (size_t k = 0; k < kinds.size(); ++k) choices.push_back({k}), all.insert(k);
  if (kinds.size() > kMostTogether)
    choices.push_back(all);
  else
    for (uint32_t bits = 1; bits < 1U << kinds.size(); ++bits) {
      std::set<size_t> choice;
      for (size_t k = 0; k < kinds.size(); ++k)
        if ((bits >> k & 1) != 0) choice.insert(k);
      if (choice.size() > 1) choices.push_back(std::move(choice));
    }
  std::vector<Part> parts;
  for (const std::set<size_t>& choice : choices) {
    Part part{cluster, {}, choice};
    DeviceKind kind = kinds[*choice.begin()];
    for (const size_t k : choice)
      if (k != *choice.begin()) kind = worst_case_kind(kind, kinds[k]);
    part.cluster.kinds = {kind};
    for (size_t d = 0; d < of_device.size(); ++d)
      if (choice.contains(of_device[d])) part.devices.push_back(static_cast<int32_t>(d));
    part.cluster.devices.assign(part.devices.size(), 0);
    set_nodes(part);
    parts.push_back(std::move(part));
  }
  return parts;
}

// Maps devices of `part` to their numbers among the given ones.
void renumber(Plan& plan, const Part& part, size_t given) {
  for (Stage& stage : plan.stages)
    for (int32_t& device : stage.mesh.devices) device = part.devices[static_cast<size_t>(device)];
  std::vector<int64_t> arenas(given, 0);
  for (size_t d = 0; d < plan.estimate.arena_bytes.size(); ++d)
    arenas[static_cast<size_t>(part.devices[d])] = plan.estimate.arena_bytes[d];
  plan.estimate.arena_bytes = std::move(arenas);
}

// The part with fewest kinds that has all devices of a plan.
const Part* part_with(const std::vector<Part>& parts, const Plan& plan) {
  const auto has = [&](const Part& part) {
    return std::ranges::all_of(plan.stages, [&](const Stage& stage) {
      return std::ranges::all_of(stage.mesh.devices, [&](int32_t device) {
        return std::ranges::find(part.devices, device) != part.devices.end();
      });
    });
  };
  const Part* least = nullptr;
  for (const Part& part : parts)
    if (has(part) && (least == nullptr || part.kinds.size() < least->kinds.size())) least = &part;
  return least;
}

}  // namespace

bool is_heterogeneous(const Cluster& cluster) {
  for (size_t device = 1; device < cluster.devices.size(); ++device)
    if (!is_same_kind(kind_of(cluster, 0), kind_of(cluster, device))) return true;
  return false;
}

Cluster with_one_kind(const Cluster& cluster) {
  Cluster one = cluster;
  if (one.devices.empty()) return one;
  one.kinds = {kind_of(cluster, 0)};
  std::ranges::fill(one.devices, 0);
  return one;
}

Result<PlanResult> plan_heterogeneous(const Graph& graph, const Cluster& cluster,
                                      const KernelCatalog& catalog, const PlanOptions& options,
                                      PlanRefusal& refusal) {
  std::vector<Part> parts = parts_of(cluster);
  if (options.like != nullptr) {
    const Part* same = part_with(parts, *options.like);
    if (same == nullptr)
      return Status(StatusCode::kInvalidArgument,
                    format("the plan to follow uses devices beyond the {} given", cluster.devices.size()));
    parts = {Part(*same)};
  }
  std::optional<PlanResult> best;
  const Part *of = nullptr, *smallest = nullptr;
  PlanSearch search;
  double bound = 0;
  bool bounds_hold = true;
  int64_t least = INT64_MAX;
  Status refused;
  for (const Part& part : parts) {
    PlanRefusal needs;
    PlanOptions own = options;
    own.known = nullptr;  // it applies to one cluster
    own.advise = false;
    Result<PlanResult> planned = make_plan(graph, part.cluster, catalog, own, &needs);
    if (!planned.ok()) {
      if (planned.status().code() == StatusCode::kOutOfMemory && needs.least_limit > 0 && needs.least_limit < least)
        least = needs.least_limit, smallest = &part;
      // The strategy may need another device count.
      if (refused.ok()) refused = planned.status();
      continue;
    }
    const PlanSearch& its = planned->search;
    search.configurations += its.configurations, search.solved += its.solved;
    search.too_large += its.too_large, search.refused += its.refused;
    search.closed_by_bound += its.closed_by_bound, search.open += its.open;
    bounds_hold = bounds_hold && its.gap >= 0;
    bound = of == nullptr ? its.bound_s : std::min(bound, its.bound_s);
    if (of != nullptr && planned->plan.estimate.step_time_s >= best->plan.estimate.step_time_s) continue;
    best = std::move(*planned), of = &part;
  }
  if (of != nullptr) {
    const double step = best->plan.estimate.step_time_s;
    search.closed = std::move(best->search.closed);
    search.bound_s = std::min(bound, step);
    search.gap = !bounds_hold ? -1 : step > 0 ? (step - search.bound_s) / step : 0;
    best->plan.estimate.gap = search.gap;
    best->search = std::move(search);
    renumber(best->plan, *of, cluster.devices.size());
    return std::move(*best);
  }
  if (smallest == nullptr) return refused;
  refusal.least_limit = least;
  PlanOptions own = options;
  own.known = nullptr;
  return make_plan(graph, smallest->cluster, catalog, own)
      .status()
      .with_context(format("{} devices of kind '{}', which need the least", smallest->devices.size(),
                           smallest->cluster.kinds[0].name));
}

}  // namespace tessera
