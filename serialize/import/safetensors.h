// The table of contents of a safetensors file: https://github.com/huggingface/safetensors, "Format".
#pragma once

#include <cstdint>
#include <memory>

#include "graph/base/result.h"
#include "serialize/import/foreign_file.h"
#include "serialize/model.h"

namespace tessera {

// Tensors by name; offsets are those of the source, plus `base`. kCorrupt unless names are unique, sizes agree with
// types and shapes, and the tensors cover the data without overlaps or holes. Memory is proportional to the header.
Result<ForeignTensors> read_safetensors(const ByteSource& source, int64_t base = 0);

}  // namespace tessera
