#include "parallel/composition/solo_run.h"

#include <algorithm>

#include "graph/analysis/dependencies.h"
#include "parallel/pricing/cost_model.h"

namespace tessera {

std::vector<double> solo_begins(const RankProgram& rank, const Cluster& cluster) {
  const EntryPoint& entry = rank.entries[0];
  const Dependencies dependencies =
      find_dependencies(rank, entry, usual_streams(cluster.devices.size(), cluster.shared_cores));
  const std::vector<InstructionPrice> prices = prices_of(rank, entry, cluster);
  std::vector<double> begins(entry.code.size() + 1, 0), ends(entry.code.size(), 0),
      free(dependencies.streams.size(), 0);
  for (size_t i = 0; i < entry.code.size(); ++i) {  // waits are on earlier instructions
    double& stream = free[static_cast<size_t>(dependencies.stream[i])];
    double begin = stream;
    for (const StreamWait& wait : dependencies.waits_of(static_cast<int32_t>(i)))
      begin = std::max(begin, ends[static_cast<size_t>(dependencies.streams[static_cast<size_t>(wait.stream)]
                                                           .code[static_cast<size_t>(wait.position)])]);
    begins[i] = begin;
    stream = ends[i] = begin + seconds_at(prices[i], cluster, 1);
    begins.back() = std::max(begins.back(), ends[i]);
  }
  return begins;
}

}  // namespace tessera
