#include "parallel/pricing/cluster_parts.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>
#include <tuple>

#include "graph/base/text.h"
#include "parallel/pricing/worst_case_kind.h"
#include "parallel/pricing/link_time.h"

namespace tessera {

namespace {

constexpr size_t kMostGroups = 5;

struct Group {
  DeviceKind kind;
  size_t cluster = 0;
  std::vector<int64_t> by_node;  // number in each node of the cluster
  int64_t devices = 0;
};

// Merges clusters that differ only in their device count, keeping nodes whole.
std::vector<Cluster> joined(const Fleet& fleet) {
  std::vector<Cluster> all;
  for (const Cluster& cluster : fleet.clusters) {
    const auto same = std::ranges::find_if(all, [&](Cluster other) {
      const bool whole =
          cluster.node_devices > 0 && other.devices.size() % static_cast<size_t>(cluster.node_devices) == 0;
      other.devices = cluster.devices;
      return whole && other == cluster;
    });
    if (same == all.end())
      all.push_back(cluster);
    else
      same->devices.insert(same->devices.end(), cluster.devices.begin(), cluster.devices.end());
  }
  return all;
}

Result<std::vector<Group>> groups_of(const std::vector<Cluster>& clusters) {
  std::vector<Group> all;
  for (size_t c = 0; c < clusters.size(); ++c) {
    const Cluster& cluster = clusters[c];
    const size_t first = all.size(),
                 node = static_cast<size_t>(cluster.node_devices > 0 ? cluster.node_devices : INT32_MAX);
    for (size_t d = 0; d < cluster.devices.size(); ++d) {
      const auto at = static_cast<size_t>(cluster.devices[d]);
      if (cluster.devices[d] < 0 || at >= cluster.kinds.size())
        return Status(StatusCode::kInvalidArgument,
                      format("device {} is of kind {}, the cluster lists {} kinds", d, cluster.devices[d],
                             cluster.kinds.size()));
      const DeviceKind& kind = cluster.kinds[at];
      size_t g = first;
      while (g < all.size() && !is_same_kind(all[g].kind, kind)) ++g;
      if (g == all.size()) all.push_back({kind, c, std::vector<int64_t>(), 0});
      all[g].by_node.resize(std::max(all[g].by_node.size(), d / node + 1), 0);
      ++all[g].by_node[d / node], ++all[g].devices;
    }
  }
  return all;
}

// The worst case over the members.
DeviceKind slowest(const std::vector<DeviceKind>& members, DType dtype) {
  if (members.size() == 1) return members[0];
  const auto base =
      std::ranges::min_element(members, {}, [&](const DeviceKind& kind) { return matrix_rate(kind, dtype); });
  DeviceKind it = *base;
  std::vector<std::string> names;
  for (const DeviceKind& kind : members) {
    it = worst_case_kind(it, kind);
    names.push_back(kind.name);
  }
  it.name = join(names, "+");
  return it;
}

Link slower(const Link& a, const Link& b) {
  return {std::min(a.bytes_per_s, b.bytes_per_s), std::max(a.latency_s, b.latency_s)};
}

// For every group size known to either, and up to the node.
std::vector<GroupLink> slower_inside(const Cluster& a, const Cluster& b) {
  if (a.node_links.empty() && b.node_links.empty()) return {};
  std::set<int32_t> sizes;
  for (const Cluster* cluster : {&a, &b}) {
    for (const GroupLink& link : cluster->node_links) sizes.insert(link.members);
    sizes.insert(std::max(2, cluster->node_devices));
  }
  std::vector<GroupLink> all;
  for (const int32_t members : sizes)
    all.push_back({members, slower(link_inside_node(a, members), link_inside_node(b, members))});
  return all;
}

class Parts {
 public:
  Parts(const std::vector<Cluster>& clusters, const std::vector<Group>& groups, DType dtype)
      : clusters_(clusters), groups_(groups), dtype_(dtype) {}

  void add(const std::vector<size_t>& chosen, std::vector<ClusterPart>& parts) const {
    ClusterPart part;
    part.groups = chosen;
    std::set<size_t> clusters;
    for (const size_t g : chosen)
      part.members.push_back(groups_[g].kind), clusters.insert(groups_[g].cluster);
    for (const size_t c : clusters)
      if (clusters.size() > 1 && clusters_[c].network.bytes_per_s <= 0) return;
    part.cluster = clusters_[*clusters.begin()];
    part.cluster.profile = nullptr;
    for (const size_t c : clusters)
      if (c != *clusters.begin()) join(part.cluster, clusters_[c]);
    part.cluster.kinds = {slowest(part.members, dtype_)};

    // Devices of these kinds by node, of each cluster.
    std::vector<std::vector<int64_t>> by_node;
    std::vector<int64_t> all;
    for (const size_t c : clusters) {
      std::vector<int64_t>& counts = by_node.emplace_back();
      for (const size_t g : chosen) {
        if (groups_[g].cluster != c) continue;
        counts.resize(std::max(counts.size(), groups_[g].by_node.size()), 0);
        for (size_t n = 0; n < groups_[g].by_node.size(); ++n) counts[n] += groups_[g].by_node[n];
      }
      std::erase(counts, 0);
      all.insert(all.end(), counts.begin(), counts.end());
    }
    std::ranges::sort(all, std::greater());
    const int64_t devices = std::accumulate(all.begin(), all.end(), int64_t{0});
    if (all.size() == 1) {
      part.cluster.devices.assign(static_cast<size_t>(devices), 0);
      parts.push_back(std::move(part));
      return;
    }
    if (all.front() == all[all.size() - 2]) return with_nodes(part, all.front(), devices, by_node, parts);
    // Unequal nodes: as nodes of a size that divides all; and
    // as whole nodes of the size that leaves fewest idle.
    const int64_t divisor = std::reduce(all.begin(), all.end(), int64_t{0}, std::gcd<int64_t, int64_t>);
    const auto held = [&](int64_t size) {
      int64_t sum = 0;
      for (const int64_t count : all) sum += count / size * size;
      return sum;
    };
    const int64_t whole = *std::ranges::max_element(all, {}, [&](int64_t size) {
      return std::pair{held(size), size};
    });
    with_nodes(part, divisor, devices, by_node, parts);
    if (whole > divisor) with_nodes(part, whole, held(whole), by_node, parts);
  }

 private:
  static void join(Cluster& to, const Cluster& other) {
    if (to.node_links != other.node_links || to.link != other.link) to.node_links = slower_inside(to, other);
    to.link = slower(to.link, other.link);
    to.host_link = slower(to.host_link, other.host_link);
    to.file_link = slower(to.file_link, other.file_link);
    to.shared_cores = std::max(to.shared_cores, other.shared_cores);
  }

  // If a node has `size` twice, each half gets half of its network and host.
  void with_nodes(ClusterPart part, int64_t size, int64_t devices,
                  const std::vector<std::vector<int64_t>>& by_node, std::vector<ClusterPart>& parts) const {
    Cluster& to = part.cluster;
    to.node_devices = static_cast<int32_t>(size);
    to.devices.assign(static_cast<size_t>(devices), 0);
    std::set<size_t> clusters;
    for (const size_t g : part.groups) clusters.insert(groups_[g].cluster);
    size_t i = 0;
    for (const size_t c : clusters) {
      const int64_t times = std::max<int64_t>(1, std::ranges::max(by_node[i]) / size);
      Link network = clusters_[c].network;
      network.bytes_per_s /= static_cast<double>(times);
      const int64_t host = clusters_[c].host_memory_bytes / times, file = clusters_[c].file_bytes / times;
      to.network = i == 0 ? network : slower(to.network, network);
      to.host_memory_bytes = i == 0 ? host : std::min(to.host_memory_bytes, host);
      to.file_bytes = i == 0 ? file : std::min(to.file_bytes, file);
      ++i;
    }
    parts.push_back(std::move(part));
  }

  const std::vector<Cluster>& clusters_;
  const std::vector<Group>& groups_;
  const DType dtype_;
};

}  // namespace

int64_t Fleet::devices() const {
  int64_t sum = 0;
  for (const Cluster& cluster : clusters) sum += static_cast<int64_t>(cluster.devices.size());
  return sum;
}

Result<ClusterParts> cluster_parts(const Fleet& fleet, DType dtype) {
  const std::vector<Cluster> clusters = joined(fleet);
  TSR_ASSIGN_OR_RETURN(std::vector<Group> groups, groups_of(clusters));
  // An order independent of the lists' order, by properties that matter.
  const auto rank = [&](const Group& group) {
    const Cluster& cluster = clusters[group.cluster];
    return std::tuple(matrix_rate(group.kind, dtype), group.kind.memory_bytes, group.kind.memory_bytes_per_s,
                      group.devices, cluster.network.bytes_per_s, cluster.link.bytes_per_s, group.kind.name);
  };
  std::ranges::stable_sort(groups, std::greater(), rank);
  if (groups.size() > kMostGroups) {
    std::vector<std::string> names;
    for (const Group& group : groups) names.push_back(format("{} {}", group.devices, group.kind.name));
    return Status(StatusCode::kUnsupported,
                  format("found devices of {} kinds ({}), wanted {} at most, since every choice of kinds is "
                         "planned: leave out the slowest",
                         groups.size(), join(names, ", "), kMostGroups));
  }
  ClusterParts result;
  for (const Group& group : groups) {
    const Cluster& cluster = clusters[group.cluster];
    const auto count = static_cast<int64_t>(cluster.devices.size());
    result.groups.push_back({group.kind.name, group.devices, group.cluster,
                             cluster.node_devices == 0 || count <= cluster.node_devices});
  }
  const Parts parts(clusters, groups, dtype);
  for (uint32_t choice = 1; choice < 1U << groups.size(); ++choice) {
    std::vector<size_t> chosen;
    for (size_t g = 0; g < groups.size(); ++g)
      if ((choice >> g & 1) != 0) chosen.push_back(g);
    parts.add(chosen, result.parts);
  }
  std::ranges::stable_sort(result.parts, std::greater(), [&](const ClusterPart& part) {
    return std::pair(
        static_cast<double>(part.cluster.devices.size()) * matrix_rate(part.cluster.kinds[0], dtype),
        -static_cast<int64_t>(part.members.size()));
  });
  return result;
}

std::string groups_text(const ClusterParts& parts, const std::vector<size_t>& groups) {
  std::vector<std::string> texts;
  for (const size_t g : groups)
    texts.push_back(format("{} {}", parts.groups[g].devices, parts.groups[g].name));
  return join(texts, " + ");
}

}  // namespace tessera
