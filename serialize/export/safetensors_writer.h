// Safetensors files of tensors: one, or shards of at most so many bytes with an index.
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

// One file of that name. `exported_by`, and `base`, the relative place of the model that adapters are of: in its metadata.
Result<TensorFile> safetensors_file(std::vector<TensorSource> tensors, std::string name,
                                    std::string_view exported_by = {}, std::string_view base = {});

// Plain types alone. Tensors stay in order, but within a file wider types come first, so that all are aligned; a tensor
// larger than `shard_bytes` is a shard of its own.
Result<SafetensorsFiles> safetensors_files(std::vector<TensorSource> tensors, int64_t shard_bytes);

}  // namespace tessera
