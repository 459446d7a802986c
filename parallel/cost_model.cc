#include "parallel/cost_model.h"

#include <algorithm>

namespace tessera {

double collective_seconds(const CollectiveInst& collective, int32_t members, const Link& link) {
  if (members < 2) return 0;
  const double n = members;
  const double whole = static_cast<double>(collective.elements) * info(collective.dtype).block_bytes /
                       info(collective.dtype).block_elements;
  double steps = n - 1, sent = (n - 1) / n * whole;
  if (collective.kind == CollectiveKind::kAllReduce) steps *= 2, sent *= 2;
  if (collective.kind == CollectiveKind::kAllToAll) sent /= n;
  return steps * link.latency_s + (link.bytes_per_s > 0 ? sent / link.bytes_per_s : 0);
}

Price price(const RankProgram& program, std::string_view entry, const Cluster& cluster, int32_t busy_ranks) {
  Price price;
  const double sharing = cluster.shared_cores > 0 ? std::max(1, busy_ranks) : 1;
  const double copy_rate = cluster.kinds.empty() ? 0 : cluster.kinds[0].memory_bytes_per_s;
  for (const EntryPoint& point : program.entries) {
    if (point.name != entry) continue;
    for (const Instruction& instruction : point.code) {
      if (const auto* kernel = std::get_if<KernelInst>(&instruction)) {
        price.compute_s += sharing * program.kernels[static_cast<size_t>(kernel->kernel)].seconds;
      } else if (const auto* collective = std::get_if<CollectiveInst>(&instruction)) {
        const auto members = program.groups[static_cast<size_t>(collective->group)].ranks.size();
        price.communication_s += collective_seconds(*collective, static_cast<int32_t>(members), cluster.link);
        ++price.collectives;
      } else if (const auto* copy = std::get_if<CopyInst>(&instruction)) {
        if (copy_rate > 0)
          price.compute_s += sharing * 2 * static_cast<double>(copy->rows * copy->row_bytes) / copy_rate;
      }
    }
  }
  return price;
}

}  // namespace tessera
