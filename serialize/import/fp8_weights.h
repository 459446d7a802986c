// Weights of 8-bit floats (E4M3) with a scale for each block of rows and columns.
#pragma once

#include "serialize/import/quantized_folder.h"

namespace tessera {

// Decodes every f8_e4m3 tensor NAME [N, K] with NAME_scale_inv (or NAME_scale) [ceil(N / rows), ceil(K / columns)], or one number,
// to f32.
Result<std::vector<DecodedWeight>> fp8_weights(const FolderQuantization& quantization, const ForeignFile& file);

}  // namespace tessera
