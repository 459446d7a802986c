// Writes tensors as one safetensors file, or as shards of limited size with an index.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "graph/base/result.h"
#include "serialize/export/tensor_file.h"

namespace tessera {

struct SafetensorsFiles {
  std::vector<TensorFile> files;  // "model.safetensors", or "model-00001-of-00002.safetensors" and so on
  std::string index;              // model.safetensors.index.json; empty for one file
};

// One file of that name. `exported_by`, and `base`, the relative path of the adapters' model, go to its metadata.
Result<TensorFile> safetensors_file(std::vector<TensorSource> tensors, std::string name,
                                    std::string_view exported_by = {}, std::string_view base = {});

// Plain types only. Tensors keep their order, but wider types come first within a file,
// so that all are aligned. A tensor larger than `shard_bytes` is a shard of its own.
Result<SafetensorsFiles> safetensors_files(std::vector<TensorSource> tensors, int64_t shard_bytes);

}  // namespace tessera
