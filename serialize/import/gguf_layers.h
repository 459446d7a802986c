// Keys of a GGUF file that differ by layer.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
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

// The width that all layers with experts share: one number, or a list with 0 for other layers. `otherwise`: without the key.
Result<int64_t> read_expert_width(const GgufFile& file, const std::string& key, int64_t layers, std::optional<int64_t> otherwise);

// By layer: 0 for one with the tensors of a feed-forward half without experts.
std::vector<int64_t> layers_with_experts(const GgufFile& file, int64_t layers);

// FeedForwardLayers: layers with a feed-forward half, with experts or without.
struct FeedForwardLayers {
  int64_t width = 0;                     // of those without experts; 0: there is none
  std::vector<int64_t> halves, experts;  // by layer: 1 for a feed-forward half, and for one with experts
};
// Reads a list of widths, 0 for a layer without the half. A layer is dense if the file has the tensors of one, or, in a file
// without tensors, if its width differs from `expert_width`.
Result<FeedForwardLayers> read_feed_forward_layers(const GgufFile& file, const std::string& key, int64_t layers, int64_t expert_width);

// Reads a list with one number for each layer.
Result<std::vector<int64_t>> read_layer_numbers(const GgufFile& file, const std::string& key, int64_t layers);

// By layer: 0 for the first so many, which are dense, 1 for those with experts; empty: all have.
Result<std::vector<int64_t>> read_layers_after_dense(const GgufFile& file, const std::string& key, int64_t layers);

// The widths of dense_2_feat_out and dense_3_feat_out behind vectors of `width`; empty: neither is there.
Result<std::vector<int64_t>> read_dense_widths(const GgufFile& file, const std::string& prefix, int64_t width);

// By layer: 1 for one with a window, by the list at `key`, else all but each n-th: `key` has n, or it is `every`; 0: all.
Result<std::vector<int64_t>> read_window_layers(const GgufFile& file, const std::string& key, int64_t every, int64_t layers);

// By layer: 1 for a recurrent one, by the flags of `list_key`, which may have more, else all but each `every`th.
Result<std::vector<int64_t>> read_recurrent_layers(const GgufFile& file, const std::string& list_key, int64_t every, int64_t layers);

}  // namespace tessera
