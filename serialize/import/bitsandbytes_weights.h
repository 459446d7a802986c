// Weights saved by bitsandbytes: 4-bit codes in blocks (NF4, FP4), and 8-bit codes with a scale per row.
#pragma once

#include <vector>

#include "graph/base/result.h"
#include "serialize/import/quantized_folder.h"

namespace tessera {

// Weights decoded from the quantised tensors of `file`:
//   X.weight with X.weight.absmax, .quant_map and .quant_state.bitsandbytes__nf4 -> nf4, the same numbers. Scales that
//     are quantised themselves (.nested_absmax, .nested_quant_map) are expanded; blocks longer than 64 become several.
//   the same with __fp4 -> the type that its state names, as bitsandbytes rounds it.
//   X.weight i8 with X.SCB -> f32: code * scale / 127, as bitsandbytes computes it.
// kUnsupported for rows of nf4 that are no multiple of 64, other tables of values and other block sizes.
Result<std::vector<DecodedWeight>> bitsandbytes_weights(const ForeignFile& file);

}  // namespace tessera
