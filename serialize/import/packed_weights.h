// Weights of GPTQ (Frantar et al., 2022) and AWQ (Lin et al., 2023) files: integers
// packed in i32 words, with a scale and a zero point per group of rows and column.
#pragma once

#include "serialize/import/quantized_folder.h"

namespace tessera {

// Decodes X.qweight and its companions, [K, N], to X.weight [N, K]. GPTQ's words hold rows of
// one column from the lowest bits on; AWQ's hold columns 0, 2, 4, 6, 1, 3, 5, 7 of one row.
Result<std::vector<DecodedWeight>> packed_weights(const FolderQuantization& quantization,
                                                  const ForeignFile& file);

}  // namespace tessera
