// A generator as a server of one row: settings, and what the step of one token reads.
#pragma once

#include <cstdint>

#include "engine/program/serving_settings.h"
#include "engine/settings/generator_settings.h"
#include "graph/program.h"
#include "runtime/device_set.h"

namespace tessera {

// The finalized settings of a server of one sequence with the generator's context: its pages hold the context in every
// attention. `settings` have a context.
ServingSettings single_row_settings(const GeneratorSettings& settings, const DeviceSet& devices);

// Bytes read for one token, over all ranks: parameters, and keys and values of a full context.
struct TokenReads {
  int64_t parameter_bytes = 0, cache_bytes = 0;
};
// Counts from the instructions of the smallest step. Tables are read by rows (OpCost), every other parameter whole.
TokenReads count_token_reads(const Program& program, const ServingSettings& settings);

}  // namespace tessera
