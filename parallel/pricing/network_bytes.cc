#include "parallel/pricing/network_bytes.h"

#include <algorithm>
#include <set>
#include <variant>

#include "graph/base/dtype.h"

namespace tessera {

namespace {

struct Reach {
  int64_t members = 0;
  int64_t outside = 0;  // of those in other nodes
  int64_t nodes = 0;    // other nodes with members
};

Reach reach_of(const Group& group, int32_t rank, int32_t node_devices) {
  Reach reach{static_cast<int64_t>(group.ranks.size())};
  std::set<int32_t> nodes;
  for (const int32_t other : group.ranks) {
    if (other / node_devices == rank / node_devices) continue;
    ++reach.outside;
    nodes.insert(other / node_devices);
  }
  reach.nodes = std::ssize(nodes);
  return reach;
}

int64_t bytes_of(const CollectiveInst& collective, const Reach& reach) {
  if (reach.outside == 0) return 0;
  const int64_t whole = dtype_bytes(collective.dtype, collective.elements), own = whole / reach.members;
  switch (collective.kind) {
    case CollectiveKind::kAllReduce: return own * reach.outside + own * reach.nodes;
    case CollectiveKind::kReduceScatter: return own * reach.outside;
    case CollectiveKind::kAllToAll: return own * reach.outside / reach.members;
    default: return own * reach.nodes;
  }
}

}  // namespace

int64_t network_bytes(const Program& program, std::string_view entry, const Cluster& cluster) {
  if (cluster.node_devices == 0) return 0;
  int64_t sum = 0;
  for (size_t at = 0; at < program.ranks.size(); ++at) {
    const RankProgram& part = program.ranks[at];
    const int32_t rank = program.rank_of(at);
    const EntryPoint* const point = program.find_entry(rank, entry);
    if (point == nullptr) continue;
    for (const Instruction& instruction : point->code) {
      if (const auto* collective = std::get_if<CollectiveInst>(&instruction))
        sum += bytes_of(*collective, reach_of(part.groups[static_cast<size_t>(collective->group)], rank, cluster.node_devices));
      else if (const auto* send = std::get_if<SendInst>(&instruction); send != nullptr && send->peer / cluster.node_devices != rank / cluster.node_devices)
        sum += send->bytes;
    }
  }
  return sum;
}

}  // namespace tessera
