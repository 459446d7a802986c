#include "serialize/import/gguf_layers.h"

#include "graph/base/text.h"

namespace tessera {

namespace {

// One count for each layer, or a common one.
Result<std::vector<int64_t>> read_counts(const GgufFile& file, const std::string& key, int64_t layers) {
  std::vector<int64_t> counts;
  if (file.has_array(key)) {
    TSR_ASSIGN_OR_RETURN(counts, read_layer_numbers(file, key, layers));
  } else {
    TSR_ASSIGN_OR_RETURN(const int64_t common, file.integer(key, std::nullopt));
    counts.assign(static_cast<size_t>(layers), common);
  }
  for (size_t i = 0; i < counts.size(); ++i)
    if (counts[i] < 0) return Status(StatusCode::kCorrupt, format("{} is {} in layer {}, wanted 0 or more", key, counts[i], i));
  return counts;
}

}  // namespace

Result<std::vector<int64_t>> read_layer_numbers(const GgufFile& file, const std::string& key, int64_t layers) {
  TSR_ASSIGN_OR_RETURN(std::vector<int64_t> numbers, file.integers(key));
  if (std::ssize(numbers) != layers)
    return Status(StatusCode::kCorrupt, format("{} has {} values, the model has {} layers", key, numbers.size(), layers));
  return numbers;
}

Result<std::vector<int64_t>> read_layers_after_dense(const GgufFile& file, const std::string& key, int64_t layers) {
  TSR_ASSIGN_OR_RETURN(const int64_t dense, file.integer(key, 0));
  if (dense < 0 || dense > layers) return Status(StatusCode::kCorrupt, format("{} is {} of {} layers", key, dense, layers));
  std::vector<int64_t> found;
  for (int64_t i = 0; dense > 0 && i < layers; ++i) found.push_back(i >= dense);
  return found;
}

Result<std::vector<int64_t>> read_dense_widths(const GgufFile& file, const std::string& prefix, int64_t width) {
  std::vector<int64_t> widths;
  for (const bool is_first : {true, false}) {
    const std::string module = prefix + (is_first ? "dense_2" : "dense_3");
    TSR_ASSIGN_OR_RETURN(const int64_t out, file.integer(module + "_feat_out", 0));
    TSR_ASSIGN_OR_RETURN(const int64_t in, file.integer(module + "_feat_in", width));
    if (out == 0) continue;
    if (out < 0 || in != width)
      return Status(StatusCode::kCorrupt,
                    format("{} has {} features of {}, wanted more than 0 of the {} before it", module, out, in, width));
    if (!is_first && widths.empty())
      return Status(StatusCode::kUnsupported,
                    format("{}_feat_out is {} without {}dense_2_feat_out, wanted both or none", module, out, prefix));
    widths.push_back(width = out);
  }
  return widths;
}

Result<LayerCounts> read_layer_counts(const GgufFile& file, const std::string& key, int64_t layers, std::string_view what) {
  TSR_ASSIGN_OR_RETURN(const std::vector<int64_t> counts, read_counts(file, key, layers));
  LayerCounts found;
  for (size_t i = 0; i < counts.size(); ++i) {
    if (counts[i] > 0 && found.count > 0 && counts[i] != found.count)
      return Status(StatusCode::kUnsupported, format("{} is {} in layer {} and {} before; layers with {} want one number, others 0", key,
                                                     counts[i], i, found.count, what));
    if (counts[i] > 0) found.count = counts[i];
    found.layers.push_back(counts[i] > 0);
  }
  return found;
}

Result<int64_t> read_expert_width(const GgufFile& file, const std::string& key, int64_t layers, std::optional<int64_t> otherwise) {
  if (!file.has_array(key)) return file.integer(key, otherwise);
  TSR_ASSIGN_OR_RETURN(const LayerCounts widths, read_layer_counts(file, key, layers, "experts"));
  if (widths.count == 0) return Status(StatusCode::kCorrupt, format("{} is 0 in all layers, wanted the width of experts", key));
  return widths.count;
}

std::vector<int64_t> layers_with_experts(const GgufFile& file, int64_t layers) {
  std::vector<int64_t> found;
  for (int64_t i = 0; i < layers; ++i) found.push_back(!file.tensors().contains(format("blk.{}.ffn_up.weight", i)));
  return found;
}

Result<FeedForwardLayers> read_feed_forward_layers(const GgufFile& file, const std::string& key, int64_t layers, int64_t expert_width) {
  TSR_ASSIGN_OR_RETURN(const std::vector<int64_t> widths, read_counts(file, key, layers));
  const std::vector<int64_t> with_experts = layers_with_experts(file, layers);
  FeedForwardLayers found;
  for (size_t i = 0; i < widths.size(); ++i) {
    const int64_t width = widths[i];
    const bool is_dense = width > 0 && (file.tensors().empty() ? width != expert_width : with_experts[i] == 0);
    if (is_dense && found.width > 0 && width != found.width)
      return Status(StatusCode::kUnsupported, format("{} is {} in layer {} and {} before; layers without experts want one width", key,
                                                     width, i, found.width));
    if (is_dense) found.width = width;
    found.halves.push_back(width > 0);
    found.experts.push_back(width > 0 && !is_dense);
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
