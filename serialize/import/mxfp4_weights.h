// Experts of gpt-oss as MXFP4: blocks of 32 numbers of 4 bits (OCP Microscaling Formats) with one scale.
#pragma once

#include <span>
#include <vector>

#include "graph/models/foreign_names.h"
#include "serialize/import/quantized_folder.h"

namespace tessera {

// Of ....experts.gate_up_proj_blocks u8 [E, 2F, C/32, 16] and _scales u8 [E, 2F, C/32], whose rows are gate and up by
// turns: ....experts.gate_proj.weight and up_proj.weight, mxfp4 [E, F, C]; of down_proj_blocks the one of its name. A
// byte of theirs holds neighbours, one of ours numbers i and i + 16.
Result<std::vector<DecodedWeight>> mxfp4_weights(const ForeignFile& file);

// The names of these, for parameters of gpt-oss.
extern const std::span<const NameRule> kMxfp4ExpertNames;

}  // namespace tessera
