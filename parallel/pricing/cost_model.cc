#include "parallel/pricing/cost_model.h"

#include <algorithm>
#include <optional>
#include <span>

#include "parallel/pricing/link_time.h"
#include "parallel/pricing/profile_prices.h"

namespace tessera {

namespace {

double bytes_of(const CollectiveInst& collective) {
  const DTypeInfo& type = info(collective.dtype);
  return static_cast<double>(collective.elements) * type.block_bytes / type.block_elements;
}

double launch_seconds(const Cluster& cluster) {
  return cluster.kinds.empty() ? 0 : cluster.kinds[0].launch_s;
}

double issue_seconds(const Cluster& cluster) { return cluster.kinds.empty() ? 0 : cluster.kinds[0].issue_s; }

// Without measurements: cores divide the work, but every rank launches its own kernels.
InstructionPrice divided(double seconds, double launch_s, const Cluster& cluster) {
  if (cluster.shared_cores == 0) return {seconds, seconds};
  const double launch = std::min(launch_s, seconds);
  return {seconds, launch + (seconds - launch) * cluster.shared_cores};
}

InstructionPrice kernel_price(const KernelDesc& kernel, const Cluster& cluster) {
  if (cluster.profile != nullptr && kernel.op != nullptr) {
    const OpView view{kernel.attrs, kernel.inputs, kernel.outputs, kernel.factors};
    if (const auto seconds = kernel_seconds(*cluster.profile, *kernel.op, view))
      return {seconds->alone_s, seconds->shared_s};
  }
  InstructionPrice price = divided(kernel.seconds, launch_seconds(cluster), cluster);
  price.issue_s = issue_seconds(cluster);
  return price;
}

// A collective on the links between `devices`, which may be in several nodes.
double link_time_of(const CollectiveInst& collective, std::span<const int32_t> devices,
                    const Cluster& cluster) {
  const auto members = static_cast<int32_t>(devices.size());
  if (cluster.node_links.empty() && in_one_node(cluster, devices))
    return collective_seconds(collective, members, cluster.link);
  const RankGroup group = group_of(cluster, devices);
  const double bytes = bytes_of(collective);
  if (collective.kind == CollectiveKind::kAllReduce) return all_reduce_seconds(cluster, group, bytes);
  if (collective.kind == CollectiveKind::kAllToAll) return all_to_all_seconds(cluster, group, bytes);
  return gather_seconds(cluster, group, bytes);
}

InstructionPrice collective_price(const CollectiveInst& collective, std::span<const int32_t> devices,
                                  const Cluster& cluster) {
  const auto members = static_cast<int32_t>(devices.size());
  if (cluster.profile != nullptr && in_one_node(cluster, devices))
    if (const auto seconds =
            collective_seconds(*cluster.profile, collective.kind, members, bytes_of(collective)))
      return {*seconds, *seconds, members, true};
  const double seconds = link_time_of(collective, devices, cluster);
  return {seconds, seconds, members, true, issue_seconds(cluster)};
}

InstructionPrice message_price(int64_t bytes, int32_t from, int32_t to, const Cluster& cluster) {
  const int32_t ends[] = {from, to};
  const bool inside = in_one_node(cluster, ends);
  if (cluster.profile != nullptr && inside && !cluster.profile->messages.bytes.empty()) {
    const double seconds = at(cluster.profile->messages, static_cast<double>(bytes));
    return {seconds, seconds, 1, true};
  }
  const Link& link = cluster.link;
  double seconds =
      link.latency_s + (link.bytes_per_s > 0 ? static_cast<double>(bytes) / link.bytes_per_s : 0);
  if (!inside || !cluster.node_links.empty())
    seconds = send_seconds(cluster, inside ? 1 : cluster.node_devices, static_cast<double>(bytes));
  return {seconds, seconds, 1, true};
}

InstructionPrice copy_price(const RankProgram& program, const CopyInst& copy, const Cluster& cluster) {
  const double bytes = static_cast<double>(copy.rows * copy.row_bytes);
  const auto tier_of = [&](const SlotRef& at) {
    return at.slot < 0 ? Tier::kDevice : program.slots[static_cast<size_t>(at.slot)].tier;
  };
  if (cluster.profile != nullptr)
    if (const auto seconds = copy_seconds(*cluster.profile, tier_of(copy.in), tier_of(copy.out), bytes))
      return divided(*seconds, 0, cluster);
  const bool in_file = tier_of(copy.in) == Tier::kFile || tier_of(copy.out) == Tier::kFile;
  const Link& link = in_file && cluster.file_link.bytes_per_s > 0 ? cluster.file_link : cluster.host_link;
  if (link.bytes_per_s > 0 && tier_of(copy.in) != tier_of(copy.out)) {
    const double seconds = link.latency_s + bytes / link.bytes_per_s;
    return {seconds, seconds};
  }
  const double rate = cluster.kinds.empty() ? 0 : cluster.kinds[0].memory_bytes_per_s;
  return divided(rate > 0 ? 2 * bytes / rate : 0, 0, cluster);
}

// Lower bound: host-tier operands cross
// the link, reads and writes in parallel.
double host_seconds(const RankProgram& program, const KernelInst& kernel, const Cluster& cluster) {
  if (!(cluster.host_link.bytes_per_s > 0)) return 0;
  const KernelDesc& desc = program.kernels[static_cast<size_t>(kernel.kernel)];
  const auto moved = [&](const std::vector<SlotRef>& refs, const std::vector<TensorType>& types) {
    double sum = 0;
    for (size_t i = 0; i < refs.size(); ++i)
      if (refs[i].slot >= 0 && program.slots[static_cast<size_t>(refs[i].slot)].tier == Tier::kHost)
        sum += static_cast<double>(bytes(types[i]));
    return sum;
  };
  const double most = std::max(moved(kernel.inputs, desc.inputs), moved(kernel.outputs, desc.outputs));
  return most > 0 ? cluster.host_link.latency_s + most / cluster.host_link.bytes_per_s : 0;
}

InstructionPrice no_less(InstructionPrice price, double seconds) {
  price.alone_s = std::max(price.alone_s, seconds);
  price.shared_s = std::max(price.shared_s, seconds);
  return price;
}

}  // namespace

double collective_seconds(const CollectiveInst& collective, int32_t members, const Link& link) {
  if (members < 2) return 0;
  const double n = members;
  const double whole = bytes_of(collective);
  double steps = n - 1, sent = (n - 1) / n * whole;
  if (collective.kind == CollectiveKind::kAllReduce) steps *= 2, sent *= 2;
  if (collective.kind == CollectiveKind::kAllToAll) sent /= n;
  return steps * link.latency_s + (link.bytes_per_s > 0 ? sent / link.bytes_per_s : 0);
}

InstructionPrice price_of(const RankProgram& program, const Instruction& instruction, const Cluster& cluster,
                          int32_t rank) {
  if (const auto* kernel = std::get_if<KernelInst>(&instruction))
    return no_less(kernel_price(program.kernels[static_cast<size_t>(kernel->kernel)], cluster),
                   host_seconds(program, *kernel, cluster));
  if (const auto* collective = std::get_if<CollectiveInst>(&instruction))
    return collective_price(*collective, program.groups[static_cast<size_t>(collective->group)].ranks,
                            cluster);
  if (const auto* send = std::get_if<SendInst>(&instruction))
    return message_price(send->bytes, rank, send->peer, cluster);
  if (const auto* recv = std::get_if<RecvInst>(&instruction))
    return message_price(recv->bytes, recv->peer, rank, cluster);
  return copy_price(program, std::get<CopyInst>(instruction), cluster);
}

InstructionPrice price_of_move(int64_t bytes, const Cluster& cluster) {
  RankProgram one;
  one.slots.resize(2);
  one.slots[1].tier = Tier::kHost;
  CopyInst copy;
  copy.in = {0, 0};
  copy.out = {1, 0};
  copy.row_bytes = bytes;
  return price_of(one, copy, cluster);
}

std::vector<InstructionPrice> prices_of(const RankProgram& program, const EntryPoint& entry,
                                        const Cluster& cluster, int32_t rank) {
  std::vector<std::optional<InstructionPrice>> kernels(program.kernels.size());
  std::vector<InstructionPrice> prices;
  prices.reserve(entry.code.size());
  for (const Instruction& instruction : entry.code) {
    const auto* kernel = std::get_if<KernelInst>(&instruction);
    if (kernel == nullptr) {
      prices.push_back(price_of(program, instruction, cluster, rank));
      continue;
    }
    std::optional<InstructionPrice>& known = kernels[static_cast<size_t>(kernel->kernel)];
    if (!known) known = kernel_price(program.kernels[static_cast<size_t>(kernel->kernel)], cluster);
    prices.push_back(no_less(*known, host_seconds(program, *kernel, cluster)));
  }
  return prices;
}

double loss_to_others(const Cluster& cluster, int32_t ranks) {
  if (cluster.shared_cores == 0 || cluster.profile == nullptr || ranks <= 1) return 1;
  return ranks > cluster.shared_cores ? cluster.profile->oversubscription : cluster.profile->contention;
}

double seconds_at(const InstructionPrice& price, const Cluster& cluster, int32_t busy, int32_t ranks) {
  const int32_t cores = cluster.shared_cores;
  if (cores == 0) return price.alone_s;
  if (price.threads > 1)  // measured with its members busy
    return price.alone_s * std::max(1.0, static_cast<double>(busy) / std::max(price.threads, cores));
  const double loss = loss_to_others(cluster, std::max(busy, ranks));
  if (busy >= cores) return loss * price.shared_s * busy / cores;
  if (busy <= 1 || !(price.alone_s > 0) || !(price.shared_s > 0)) return loss * price.alone_s;
  const double one = 1 / price.alone_s, all = cores / price.shared_s;
  return loss * busy / (one + (all - one) * (busy - 1) / (cores - 1));
}

double machine_share_bound(const InstructionPrice& price, const Cluster& cluster) {
  const int32_t cores = cluster.shared_cores;
  if (cores == 0 || price.meets_others) return 0;
  return std::min(price.alone_s, price.shared_s / cores);
}

double instruction_seconds(const RankProgram& program, const Instruction& instruction, const Cluster& cluster,
                           int32_t busy_ranks) {
  return seconds_at(price_of(program, instruction, cluster), cluster, std::max(1, busy_ranks));
}

Price price(const RankProgram& program, std::string_view entry, const Cluster& cluster, int32_t busy_ranks) {
  Price price;
  for (const EntryPoint& point : program.entries) {
    if (point.name != entry) continue;
    const std::vector<InstructionPrice> prices = prices_of(program, point, cluster);
    for (size_t at = 0; at < prices.size(); ++at) {
      const Instruction& instruction = point.code[at];
      const double seconds = seconds_at(prices[at], cluster, std::max(1, busy_ranks));
      const bool computes =
          std::holds_alternative<KernelInst>(instruction) || std::holds_alternative<CopyInst>(instruction);
      (computes ? price.compute_s : price.communication_s) += seconds;
      price.collectives += std::holds_alternative<CollectiveInst>(instruction);
    }
  }
  return price;
}

}  // namespace tessera
