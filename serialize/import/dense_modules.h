// Dense modules of a sentence-transformers folder, which become layers of the model (graph/models/dense_modules.h).
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "graph/base/result.h"
#include "graph/models/foreign_names.h"
#include "graph/models/model_config.h"
#include "serialize/import/foreign_file.h"

namespace tessera {

struct DenseModule {
  std::string folder;  // with config.json and model.safetensors
  int64_t width = 0;   // of its output
  bool has_bias = false;
};

// Reads the module's config.json. `channels`: width of the vectors before it. kUnsupported names an activation that is not
// torch.nn.modules.linear.Identity.
Result<DenseModule> read_dense_module(const std::string& folder, int64_t channels);

// Sets the list "dense", the flag "dense_bias", and of a decoder "head" = 0: logits would be of other vectors.
Status add_dense_sizes(std::span<const DenseModule> modules, ModelConfig& config);

// The modules' tensors by the names of kDenseModuleNames, behind the bytes of file.source, which becomes one of all files.
Result<ForeignTensors> join_dense_files(std::span<const DenseModule> modules, int64_t channels, ForeignFile& file);
extern const std::span<const NameRule> kDenseModuleNames;
// Zeros, where only other modules have a bias.
void add_absent_biases(std::span<const DenseModule> modules, ForeignPlaces& places);

}  // namespace tessera
