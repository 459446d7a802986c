// Reads small tensors of a file whole.
#pragma once

#include <string_view>
#include <vector>

#include "serialize/import/foreign_file.h"

namespace tessera {

// Reads f32, f16 or bf16 as f32. kUnsupported for other types, kCorrupt for a number that is not finite. `name`: for messages.
Result<std::vector<float>> read_stored_numbers(const ByteSource& source, const ForeignTensor& tensor,
                                               std::string_view name);
// Reads i32.
Result<std::vector<int32_t>> read_stored_integers(const ByteSource& source, const ForeignTensor& tensor,
                                                  std::string_view name);

}  // namespace tessera
