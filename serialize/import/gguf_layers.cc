#include "serialize/import/gguf_layers.h"

#include "graph/base/text.h"

namespace tessera {

Result<LayerCounts> read_layer_counts(const GgufFile& file, const std::string& key, int64_t layers, std::string_view what) {
  std::vector<int64_t> counts;
  if (file.has_array(key)) {
    TSR_ASSIGN_OR_RETURN(counts, file.integers(key));
  } else {
    TSR_ASSIGN_OR_RETURN(const int64_t common, file.integer(key, std::nullopt));
    counts.assign(static_cast<size_t>(layers), common);
  }
  if (std::ssize(counts) != layers)
    return Status(StatusCode::kCorrupt, format("{} has {} values, the model has {} layers", key, counts.size(), layers));
  LayerCounts found;
  for (size_t i = 0; i < counts.size(); ++i) {
    if (counts[i] < 0) return Status(StatusCode::kCorrupt, format("{} is {} in layer {}, wanted 0 or more", key, counts[i], i));
    if (counts[i] > 0 && found.count > 0 && counts[i] != found.count)
      return Status(StatusCode::kUnsupported, format("{} is {} in layer {} and {} before; layers with {} want one number, others 0", key,
                                                     counts[i], i, found.count, what));
    if (counts[i] > 0) found.count = counts[i];
    found.layers.push_back(counts[i] > 0);
  }
  return found;
}

Result<std::vector<int64_t>> read_window_layers(const GgufFile& file, const std::string& key, int64_t every, int64_t layers) {
  std::vector<int64_t> found;
  if (file.has_array(key)) {
    TSR_ASSIGN_OR_RETURN(found, file.integers(key));
    if (std::ssize(found) != layers)
      return Status(StatusCode::kCorrupt, format("{} has {} values, the model has {} layers", key, found.size(), layers));
    return found;
  }
  TSR_ASSIGN_OR_RETURN(every, file.integer(key, every));
  if (every < 0) return Status(StatusCode::kCorrupt, format("{} is {}, wanted 0 or more", key, every));
  for (int64_t i = 0; i < layers; ++i) found.push_back(every == 0 || i % every < every - 1);
  return found;
}

Result<std::vector<int64_t>> read_recurrent_layers(const GgufFile& file, const std::string& list_key, int64_t every, int64_t layers) {
  std::vector<int64_t> flags, found;
  if (file.has_array(list_key)) {
    TSR_ASSIGN_OR_RETURN(flags, file.integers(list_key));
    if (std::ssize(flags) < layers)
      return Status(StatusCode::kCorrupt, format("{} has {} values, the model has {} layers", list_key, flags.size(), layers));
  }
  for (int64_t i = 0; i < layers; ++i) found.push_back(flags.empty() ? (i + 1) % every != 0 : flags[static_cast<size_t>(i)] != 0);
  return found;
}

}  // namespace tessera
