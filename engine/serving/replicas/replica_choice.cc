#include "engine/serving/replicas/replica_choice.h"

#include <algorithm>

namespace tessera {

size_t choose_replica(std::span<const ReplicaLoad> loads) {
  const auto least = std::ranges::min_element(
      loads, {}, [](const ReplicaLoad& load) { return load.expected_tokens - load.cached_tokens; });
  return static_cast<size_t>(least - loads.begin());
}

}  // namespace tessera
