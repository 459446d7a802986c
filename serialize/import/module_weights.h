// Weights of modules that a configuration groups: those of compressed-tensors and modelopt.
#pragma once

#include <string>
#include <vector>

#include "graph/base/result.h"
#include "serialize/import/foreign_file.h"
#include "serialize/import/module_schemes.h"
#include "serialize/import/quantized_folder.h"

namespace tessera {

// Decodes the weights of all modules with quantised tensors, by the group that a module's name belongs to:
//   integers -> q4_0, q5_0 or q8_0 where all scales are numbers of f16, and rows and groups whole blocks: the same numbers;
//               else (code - zero point) * scale in the type of the scales, rounded once
//   8-bit floats -> code * scale in the type of the scales; bf16 with scales that are exponents
//   nvfp4 -> nvfp4 with a factor of the products, and bf16 beside it; mxfp4 -> mxfp4; bf16 where rows are no whole blocks
// Experts of one layer have one type. Tensors of plain modules but the weight are erased from `file`.
// kCorrupt names a missing or wrong tensor; kUnsupported a target or group without a module, and quantised tensors of a module
// that no group claims.
Result<std::vector<DecodedWeight>> module_weights(const ModuleSchemes& schemes, ForeignFile& file);

}  // namespace tessera
