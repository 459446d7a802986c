// Replicas of an engine, which `dp` of its option `parallel` asks for, and what each has of the whole.
#pragma once

#include <cstdint>
#include <string_view>

#include "engine/program/serving_settings.h"
#include "graph/base/result.h"

namespace tessera {

// Replicas that the words want: 1 without dp. kInvalidArgument for words that are none, and for those that spread parameters
// over dp, since each replica has all of them.
Result<int32_t> count_replicas(std::string_view parallel);

// Settings of each replica: sequences, pages and window pages are divided, rounded up; the limit of host memory is
// divided, rounded down; the limit of devices stays. The plan has dp=1.
ServingSettings settings_of_replica(ServingSettings whole, int32_t replicas);

}  // namespace tessera
