// Experts of gpt-oss as MXFP4: blocks of 32 4-bit numbers with one scale (OCP Microscaling Formats).
#pragma once

#include <span>
#include <vector>

#include "graph/models/foreign_names.h"
#include "serialize/import/quantized_folder.h"

namespace tessera {

// Decodes experts.gate_up_proj_blocks u8 [E, 2F, C/32, 16] with _scales u8 [E, 2F, C/32], whose
// rows alternate gate and up, to gate_proj.weight and up_proj.weight, mxfp4 [E, F, C];
// down_proj_blocks to its one. A byte holds neighbours in theirs, numbers i and i + 16 in ours.
Result<std::vector<DecodedWeight>> mxfp4_weights(const ForeignFile& file);

// Names of these tensors, for parameters of gpt-oss.
extern const std::span<const NameRule> kMxfp4ExpertNames;

}  // namespace tessera
