// Describes a strategy to readers without knowledge of parallelism.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "parallel/strategy/strategy.h"

namespace tessera {

// Sentences: the distribution of model and batch, then each further option's meaning,
// with the option in brackets. `micro_batches`: of a step of `global_batch` sequences.
std::vector<std::string> describe_strategy(const StrategySpec& spec, int64_t global_batch, int64_t micro_batches);

// Likewise for a --parallel text; empty for unsupported options.
std::vector<std::string> describe_strategy(const std::string& strategy, int64_t global_batch,
                                     int64_t micro_batches);

}  // namespace tessera
