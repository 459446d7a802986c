// Weights of GPTQ (Frantar et al., 2022) and AWQ (Lin et al., 2023) files: integers
// packed in i32 words, with a scale and a zero point for each column of a group of rows.
#pragma once

#include "serialize/import/quantized_folder.h"

namespace tessera {

// Decodes X.qweight and its companions, [K, N], to X.weight [N, K]. A word of GPTQ holds
// consecutive rows of one column, lowest bits first; a word of AWQ holds columns 0, 2, 4, 6, 1, 3,
// 5, 7 of one row.
Result<std::vector<DecodedWeight>> packed_weights(const FolderQuantization& quantization,
                                                  const ForeignFile& file);

}  // namespace tessera
