// Weights of GPTQ (Frantar et al., 2022) and AWQ (Lin et al., 2023) files: integers packed in i32 words, with a scale and
// a zero point for each group of rows and each column.
#pragma once

#include "serialize/import/quantized_folder.h"

namespace tessera {

// Of X.qweight and its companions: X.weight [N, K]. Theirs are [K, N]: GPTQ's words hold numbers of one column, rows from
// the lowest bits on; AWQ's numbers of one row, columns 0, 2, 4, 6, 1, 3, 5, 7 from the lowest bits on.
Result<std::vector<DecodedWeight>> packed_weights(const FolderQuantization& quantization,
                                                  const ForeignFile& file);

}  // namespace tessera
