// Weight files of a Hugging Face folder, with tensors named as in the
// family's table (graph/models/foreign_names.h), whichever class saved them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "graph/base/result.h"
#include "serialize/import/foreign_file.h"
#include "text/json.h"

namespace tessera {

// "folder/name", or "name" for an empty folder.
std::string path_in_folder(const std::string& folder, std::string_view name);

struct WeightFiles {
  std::vector<std::string> paths;
  Json index;                       // null: a single file
  std::vector<std::string> unread;  // weight files that hold another copy and are ignored
};

// As in transformers model.safetensors precedes an index. `opened`: the file given by the
// caller, or empty; a file other than model.safetensors selects its index's shards, or itself.
// kNotFound names missing files, kUnsupported weights of PyTorch, TensorFlow and Flax.
Result<WeightFiles> find_weight_files(const std::string& folder, std::string_view opened);

// The tensors of all files, with one joined source.
Result<ForeignFile> read_weight_files(const std::string& folder, const WeightFiles& files);

}  // namespace tessera
