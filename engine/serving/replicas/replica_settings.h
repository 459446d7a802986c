// Replicas of an engine, requested by `dp` in its option `parallel`, and the settings of each.
#pragma once

#include <cstdint>
#include <string_view>

#include "engine/program/serving_settings.h"
#include "graph/base/result.h"

namespace tessera {

// Returns the number of replicas: dp, or 1. kInvalidArgument for a malformed strategy,
// and for one that shards parameters over dp, since each replica has all of them.
Result<int32_t> count_replicas(std::string_view parallel);

// Settings of one replica, with dp=1. Sequences, pages and window pages are divided,
// rounded up; the host memory limit is divided, rounded down; the device limit stays.
ServingSettings settings_of_replica(ServingSettings whole, int32_t replicas);

}  // namespace tessera
