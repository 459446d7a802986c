// Keys of a GGUF file that differ by layer.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "graph/base/result.h"
#include "serialize/import/gguf_file.h"

namespace tessera {

// LayerCounts: a count that some layers have, and others not.
struct LayerCounts {
  int64_t count = 0;             // of those that have it; 0: none has
  std::vector<int64_t> layers;   // by layer: 1 if it has the count
};
// Reads a list with one count for each layer that has it and 0 for the others, or one number for all. `what` names the count.
Result<LayerCounts> read_layer_counts(const GgufFile& file, const std::string& key, int64_t layers, std::string_view what);

// By layer: 1 for one with a window, by the list at `key`, else all but each n-th: `key` has n, or it is `every`; 0: all.
Result<std::vector<int64_t>> read_window_layers(const GgufFile& file, const std::string& key, int64_t every, int64_t layers);

// By layer: 1 for a recurrent one, by the flags of `list_key`, which may have more, else all but each `every`th.
Result<std::vector<int64_t>> read_recurrent_layers(const GgufFile& file, const std::string& list_key, int64_t every, int64_t layers);

}  // namespace tessera
