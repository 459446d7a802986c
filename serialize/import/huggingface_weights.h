// The weight files of a Hugging Face folder, and their tensors under the names that the family's table has
// (graph/models/foreign_names.h), whatever class saved them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "graph/base/result.h"
#include "serialize/import/foreign_file.h"
#include "text/json.h"

namespace tessera {

// "folder/name"; of an empty folder "name".
std::string path_in_folder(const std::string& folder, std::string_view name);

struct WeightFiles {
  std::vector<std::string> paths;
  Json index;                       // null: one whole file
  std::vector<std::string> unread;  // names of weight files of the folder that hold another copy, and are not read
};

// As transformers: model.safetensors counts before an index. `opened`: the name of the file that the caller gave, or
// empty; another file than model.safetensors is obeyed: with the shards of the index that lists it, else alone.
// kNotFound names files that are missing, kUnsupported weights of PyTorch, TensorFlow and Flax.
Result<WeightFiles> find_weight_files(const std::string& folder, std::string_view opened);

// The tensors of all files, and one source of all of them.
Result<ForeignFile> read_weight_files(const std::string& folder, const WeightFiles& files);

}  // namespace tessera
