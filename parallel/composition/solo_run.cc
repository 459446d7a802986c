#include "parallel/composition/solo_run.h"

#include <algorithm>

#include "graph/analysis/dependencies.h"

namespace tessera {

std::vector<InstructionPrice> solo_prices(const RankProgram& rank, const Cluster& cluster,
                                          const SoftwareTraits& traits) {
  const EntryPoint& entry = rank.entries[0];
  std::vector<InstructionPrice> prices = prices_of(rank, entry, cluster);
  if (traits.reprice)
    for (size_t i = 0; i < prices.size(); ++i) traits.reprice(rank, entry.code[i], prices[i]);
  return prices;
}

SoloRun run_solo(const RankProgram& rank, const Cluster& cluster, std::span<const InstructionPrice> prices,
                 bool one_stream) {
  const EntryPoint& entry = rank.entries[0];
  const Dependencies dependencies =
      find_dependencies(rank, entry, usual_streams(cluster.devices.size(), cluster.shared_cores));
  SoloRun run{std::vector<double>(entry.code.size(), 0), std::vector<double>(entry.code.size(), 0)};
  std::vector<double> free(dependencies.streams.size(), 0);
  for (size_t i = 0; i < entry.code.size(); ++i) {  // waits are on earlier instructions
    double& stream = free[one_stream ? 0 : static_cast<size_t>(dependencies.stream[i])];
    double begin = stream;
    for (const StreamWait& wait : dependencies.waits_of(static_cast<int32_t>(i)))
      begin =
          std::max(begin, run.ends[static_cast<size_t>(dependencies.streams[static_cast<size_t>(wait.stream)]
                                                           .code[static_cast<size_t>(wait.position)])]);
    run.begins[i] = begin;
    stream = run.ends[i] = begin + seconds_at(prices[i], cluster, 1);
    run.end_s = std::max(run.end_s, run.ends[i]);
  }
  return run;
}

}  // namespace tessera
