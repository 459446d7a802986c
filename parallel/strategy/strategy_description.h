// A strategy in words that need no knowledge of parallelism.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "parallel/strategy/strategy.h"

namespace tessera {

// Sentences: how the model and the batch are dealt out, then what each further word means, the word in brackets. `micro_batches`: of a step
// of `global_batch` sequences.
std::vector<std::string> describe_strategy(const StrategySpec& spec, int64_t global_batch, int64_t micro_batches);

// The same of the words of --parallel; empty for words that no plan of this library has.
std::vector<std::string> describe_strategy(const std::string& strategy, int64_t global_batch,
                                     int64_t micro_batches);

}  // namespace tessera
