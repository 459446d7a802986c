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

double instruction_seconds(const RankProgram& program, const Instruction& instruction, const Cluster& cluster,
                           int32_t busy_ranks) {
  const double sharing = cluster.shared_cores > 0 ? std::max(1, busy_ranks) : 1;
  const auto message_seconds = [&](int64_t bytes) {
    const Link& link = cluster.link;
    return link.latency_s + (link.bytes_per_s > 0 ? static_cast<double>(bytes) / link.bytes_per_s : 0);
  };
  if (const auto* kernel = std::get_if<KernelInst>(&instruction))
    return sharing * program.kernels[static_cast<size_t>(kernel->kernel)].seconds;
  if (const auto* collective = std::get_if<CollectiveInst>(&instruction)) {
    const auto members = program.groups[static_cast<size_t>(collective->group)].ranks.size();
    return collective_seconds(*collective, static_cast<int32_t>(members), cluster.link);
  }
  if (const auto* send = std::get_if<SendInst>(&instruction)) return message_seconds(send->bytes);
  if (const auto* recv = std::get_if<RecvInst>(&instruction)) return message_seconds(recv->bytes);
  const auto& copy = std::get<CopyInst>(instruction);
  const double rate = cluster.kinds.empty() ? 0 : cluster.kinds[0].memory_bytes_per_s;
  return rate > 0 ? sharing * 2 * static_cast<double>(copy.rows * copy.row_bytes) / rate : 0;
}

Price price(const RankProgram& program, std::string_view entry, const Cluster& cluster, int32_t busy_ranks) {
  Price price;
  for (const EntryPoint& point : program.entries) {
    if (point.name != entry) continue;
    for (const Instruction& instruction : point.code) {
      const double seconds = instruction_seconds(program, instruction, cluster, busy_ranks);
      const bool computes =
          std::holds_alternative<KernelInst>(instruction) || std::holds_alternative<CopyInst>(instruction);
      (computes ? price.compute_s : price.communication_s) += seconds;
      price.collectives += std::holds_alternative<CollectiveInst>(instruction);
    }
  }
  return price;
}

}  // namespace tessera
