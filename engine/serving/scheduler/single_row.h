// A generator as a server of one row: its settings, and the bytes read by a step of one token.
#pragma once

#include <cstdint>

#include "engine/program/serving_settings.h"
#include "engine/settings/generator_settings.h"
#include "graph/program.h"
#include "runtime/device_set.h"

namespace tessera {

// Finalized settings of a one-sequence server; its pages hold the
// generator's context in every attention. `settings` have a context.
ServingSettings single_row_settings(const GeneratorSettings& settings, const Graph& forward, const DeviceSet& devices);

// Bytes read for one token, over all ranks: parameters, and keys and values of a full context.
struct TokenReads {
  int64_t parameter_bytes = 0, cache_bytes = 0;
};
// Counted from the smallest step's instructions. Tables are read by rows (OpCost), other parameters whole.
TokenReads count_token_reads(const Program& program, const ServingSettings& settings);

}  // namespace tessera
