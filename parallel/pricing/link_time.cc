#include "parallel/pricing/link_time.h"

#include <algorithm>
#include <cmath>
#include <set>

namespace tessera {

namespace {

double link_seconds(double bytes, double bytes_per_s) { return bytes_per_s > 0 ? bytes / bytes_per_s : 0; }

int32_t node_of(const Cluster& cluster, int32_t device) {
  return cluster.node_devices > 0 ? device / cluster.node_devices : 0;
}

// Form: the inter-node algorithm. On a ring nearly twice the message leaves
// every node in a sum, once in a gather. Sums over two nodes use trees: the
// message leaves each node once. Trees over more nodes equal rings.
enum class Form : uint8_t { kRing, kTreeOfTwo };

// Rate and latency of one ring in the group, with all other groups of the node busy.
Link link_of(const Cluster& cluster, RankGroup group, Form form) {
  Link link = link_inside_node(cluster, group.per_node > 1 ? group.per_node : 2);
  const int32_t nodes = (group.members + group.per_node - 1) / group.per_node;
  if (nodes <= 1) return link;
  const bool half = group.one_ring && group.per_node > 1 && group.per_node < cluster.node_devices;
  const double share = group.per_node * (half ? 0.5 : 1) / std::max(1, cluster.node_devices);
  double network = cluster.network.bytes_per_s * share;
  if (form == Form::kTreeOfTwo && nodes == 2) network *= 2.0 * (group.members - 1) / group.members;
  link.bytes_per_s =
      link.bytes_per_s > 0 && group.per_node > 1 ? std::min(link.bytes_per_s, network) : network;
  link.latency_s =
      (group.per_node > 1 ? link.latency_s : 0) + 2 * std::log2(nodes) * cluster.network.latency_s;
  return link;
}

double all_reduce_seconds(const Cluster& cluster, RankGroup group, double bytes, Form form) {
  if (group.members < 2) return 0;
  const Link link = link_of(cluster, group, form);
  return link.latency_s + link_seconds(2.0 * (group.members - 1) / group.members * bytes, link.bytes_per_s);
}

}  // namespace

Link link_inside_node(const Cluster& cluster, int32_t members) {
  const auto& links = cluster.node_links;
  if (links.empty()) {
    const double steps = 2.0 * (members - 1);
    return {cluster.link.bytes_per_s, cluster.link.latency_s * steps};
  }
  size_t at = 0;
  while (at + 1 < links.size() && links[at].members < members) ++at;
  if (at == 0 || links[at].members <= members) return links[at].link;
  const GroupLink &low = links[at - 1], &high = links[at];
  const double part = std::log(static_cast<double>(members) / low.members) /
                      std::log(static_cast<double>(high.members) / low.members);
  return {low.link.bytes_per_s + part * (high.link.bytes_per_s - low.link.bytes_per_s),
          low.link.latency_s + part * (high.link.latency_s - low.link.latency_s)};
}

RankGroup group_of(const Cluster& cluster, int32_t members, int32_t stride) {
  const int32_t node = cluster.node_devices > 0 ? cluster.node_devices : INT32_MAX;
  return {members, std::clamp(node / std::max(1, stride), 1, std::max(1, members)), false};
}

RankGroup group_of(const Cluster& cluster, std::span<const int32_t> devices) {
  std::set<int32_t> nodes;
  for (const int32_t device : devices) nodes.insert(node_of(cluster, device));
  const auto members = static_cast<int32_t>(devices.size());
  return {members, std::max(1, members / std::max(1, static_cast<int32_t>(nodes.size()))), false};
}

bool in_one_node(const Cluster& cluster, std::span<const int32_t> devices) {
  return std::ranges::all_of(
      devices, [&](int32_t device) { return node_of(cluster, device) == node_of(cluster, devices.front()); });
}

double all_reduce_seconds(const Cluster& cluster, RankGroup group, double bytes) {
  return all_reduce_seconds(cluster, group, bytes, Form::kTreeOfTwo);
}

double gather_seconds(const Cluster& cluster, RankGroup group, double bytes) {
  return all_reduce_seconds(cluster, group, bytes, Form::kRing) / 2;
}

double all_to_all_seconds(const Cluster& cluster, RankGroup group, double bytes) {
  if (group.members < 2) return 0;
  const Link link = link_of(cluster, group, Form::kRing);
  return link.latency_s / 2 +
         link_seconds(static_cast<double>(group.members - 1) / group.members * bytes / group.members,
                      link.bytes_per_s);
}

double send_seconds(const Cluster& cluster, int32_t stride, double bytes) {
  const int32_t node = cluster.node_devices;
  if (node == 0 || stride < node) {
    const Link link = link_inside_node(cluster, 2);
    return link.latency_s / 2 + link_seconds(bytes, link.bytes_per_s);
  }
  return cluster.network.latency_s + link_seconds(bytes, cluster.network.bytes_per_s / node);
}

}  // namespace tessera
