#include "graph/models/model_family.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "graph/base/text.h"
#include "graph/models/decoder.h"
#include "graph/models/encoder.h"
#include "graph/models/layer_builder.h"

namespace tessera {

#define TESSERA_FAMILY(file) std::span<const ModelFamily> file##_families();
#include "graph/models/family_list.inc"
#undef TESSERA_FAMILY

namespace {

// The families of each file in graph/models/families, by name.
const std::vector<ModelFamily>& families() {
  static const std::vector<ModelFamily> all = [] {
    std::vector<ModelFamily> found;
#define TESSERA_FAMILY(file) for (const ModelFamily& family : file##_families()) found.push_back(family);
#include "graph/models/family_list.inc"
#undef TESSERA_FAMILY
    std::ranges::sort(found, {}, &ModelFamily::name);
    return found;
  }();
  return all;
}

Status unknown_family(std::string_view name) {
  std::vector<std::string> names;
  for (const ModelFamily& family : families()) names.emplace_back(family.name);
  return Status(StatusCode::kNotFound, format("model family '{}' is not known; known: {}; an example: {}",
                                              name, join(names, ", "), find_model_family("llama")->example));
}

// Keys of a shorthand that are not sizes (sizes are all capitals).
constexpr std::string_view kReals[] = {
    "attention_scale", "aux", "capacity", "dropout", "embedding_scale", "expert_scale", "gate_limit",
    "latent_norm_eps", "least_step", "logit_scale", "logit_softcap", "most_step", "norm_eps", "query_beta", "residual_scale", "rope_magnitude", "rope_theta",
    "softcap", "window_theta", "z"};
constexpr std::string_view kFlags[] = {
    "attention_bias", "causal", "class_mean", "conv_bias", "dense_bias", "draft_tables", "expert_sigmoid", "head", "head_bias", "layer_scale", "mlm", "mlp_bias", "normalize",
    "o_bias", "output_bias", "pooler", "qkv_bias", "rope_half", "selection_bias", "tied", "turned"};
constexpr std::string_view kLists[] = {"dense", "expert_layers", "ffn_widths", "halves", "head_sizes", "key_values", "kv_heads", "recurrent", "rope_layers", "windows"};

// Far above any model's; a graph of them takes seconds.
constexpr int64_t kMostBlocks = 4096;

}  // namespace

std::span<const ModelFamily> all_model_families() { return families(); }

const ModelFamily* find_model_family(std::string_view name) {
  const auto at = std::ranges::find(families(), name, &ModelFamily::name);
  return at == families().end() ? nullptr : &*at;
}

ForeignNames with_draft_layer(const ForeignNames& names, const ModelConfig& config) {
  const auto layers = config.sizes.find("L");
  return layers == config.sizes.end() ? names : names.with_draft_layer(layers->second);
}

std::optional<ForeignName> gguf_name(std::string_view family, std::string_view parameter) {
  const ModelFamily* const found = find_model_family(family);
  return found == nullptr ? std::nullopt : found->gguf.find(parameter);
}

Result<ModelConfig> parse_shorthand(std::string_view text) {
  ModelConfig config;
  const size_t colon = text.find(':');
  config.family = trim(text.substr(0, colon));
  const ModelFamily* family = find_model_family(config.family);
  if (family == nullptr) return unknown_family(config.family);
  if (colon == std::string_view::npos) return config;

  for (const std::string& part : split(text.substr(colon + 1), ',')) {
    const size_t equals = part.find('=');
    const std::string key(trim(std::string_view(part).substr(0, equals)));
    const std::string_view value =
        equals == std::string::npos ? std::string_view() : trim(std::string_view(part).substr(equals + 1));
    const auto wrong = [&](std::string_view wanted) {
      return Status(StatusCode::kInvalidArgument, format("model '{}': found '{}', wanted {}; an example: {}",
                                                         text, trim(part), wanted, family->example));
    };
    if (config.sizes.contains(key) || config.reals.contains(key) || config.flags.contains(key) ||
        config.lists.contains(key))
      return wrong("each name once");
    if (std::ranges::find(kReals, key) != std::end(kReals)) {
      const auto real = parse_f64(value);
      if (!real) return wrong("a number");
      config.reals[key] = *real;
    } else if (std::ranges::find(kFlags, key) != std::end(kFlags)) {
      if (equals != std::string::npos && value != "0" && value != "1") return wrong("0 or 1");
      config.flags[key] = value != "0";
    } else if (std::ranges::find(kLists, key) != std::end(kLists)) {
      std::vector<int64_t>& list = config.lists[key];
      for (const std::string& item : split(value, '|')) {
        const auto number = parse_i64(item);
        if (!number) return wrong("numbers with | between them, one for each layer");
        list.push_back(*number);
      }
    } else {
      const auto size = parse_i64(value);
      if (key.empty() || !size) return wrong("NAME=COUNT");
      config.sizes[key] = *size;
    }
  }
  return config;
}

std::string to_text(const ModelConfig& config) {
  std::vector<std::string> parts;
  for (const auto& [name, size] : config.sizes) parts.push_back(format("{}={}", name, size));
  for (const auto& [name, real] : config.reals) parts.push_back(format("{}={}", name, real));
  for (const auto& [name, flag] : config.flags) parts.push_back(format("{}={}", name, flag ? 1 : 0));
  for (const auto& [name, list] : config.lists) {
    std::vector<std::string> items;
    for (const int64_t item : list) items.push_back(to_text(item));
    parts.push_back(format("{}={}", name, join(items, "|")));
  }
  return config.family + (parts.empty() ? "" : ":") + join(parts, ",");
}

Result<Graph> build_model(const ModelConfig& config) {
  const ModelFamily* family = find_model_family(config.family);
  if (family == nullptr) return unknown_family(config.family);
  if (const auto blocks = config.sizes.find("L");
      blocks != config.sizes.end() && blocks->second > kMostBlocks)
    return Status(StatusCode::kUnsupported,
                  format("{}: L = {} blocks, wanted at most {}; an example: {}", config.family,
                         blocks->second, kMostBlocks, family->example));
  Result<Graph> graph = family->decoder != nullptr   ? build_decoder(config, family->decoder)
                        : family->encoder != nullptr ? build_encoder_model(config, family->encoder)
                                                     : family->build(config);
  if (!graph.ok())
    return Status(graph.status().code(),
                  format("{}; an example: {}", graph.status().message(), family->example));
  return graph;
}

Result<ModelConfig> with_defaults(const ModelConfig& config) {
  const ModelFamily* const family = find_model_family(config.family);
  if (family == nullptr) return unknown_family(config.family);
  LayerBuilder b;
  ConfigReader reader(config, b);
  if (family->decoder != nullptr)
    (void)family->decoder(reader);
  else if (family->encoder != nullptr)
    (void)family->encoder(reader);
  else if (family->read != nullptr)
    family->read(reader);
  else
    return config;
  if (!reader.done()) return b.finish().status();
  return reader.values();
}

// Returns one more than the largest i of a parameter "block.<i>.…".
int64_t block_count(const Graph& graph) {
  int64_t count = 0;
  for (const Tensor& tensor : graph.tensors()) {
    if (tensor.kind != TensorKind::kParameter || !tensor.name.starts_with("block.")) continue;
    const std::string_view rest = std::string_view(tensor.name).substr(6);
    count = std::max(count, parse_i64(rest.substr(0, rest.find('.'))).value_or(-1) + 1);
  }
  return count;
}

// GPT-2's scheme for the families of this folder, by the names of docs/reference/models.md: normal(0.02), and
// projections back onto the residual stream smaller by sqrt(2 L), so that its variance does not grow with
// depth. Other matrices get He's sqrt(2 / fan-in).
Initializer initializer_for(const Graph& graph, TensorId parameter, int64_t blocks) {
  const Tensor& tensor = graph.tensor(parameter);
  std::string_view name = tensor.name;
  if (name.ends_with(".bias")) return {Initializer::Kind::kZeros, 0};
  if (name == "rope_factors") return {Initializer::Kind::kOnes, 0};  // factor 1: frequencies stay unchanged
  if (name.ends_with(".weight")) name.remove_suffix(7);
  const std::string_view leaf = name.substr(name.rfind('.') + 1);  // npos + 1 is 0
  if (tensor.type.shape.rank() < 2) {
    const bool multiplies = leaf.find("norm") != std::string_view::npos || leaf == "skip" || leaf.ends_with("scale");
    return {multiplies ? Initializer::Kind::kOnes : Initializer::Kind::kZeros, 0};
  }
  if (leaf == "conv" || leaf == "conv_q" || leaf == "conv_k" || leaf == "conv_v")  // few taps
    return {Initializer::Kind::kNormal, 1 / std::sqrt(static_cast<double>(tensor.type.shape[1]))};

  // Low-rank adapters start as zero: the second matrix
  // is zero, the first keeps the scale of its input.
  if (leaf == "lora_b") return {Initializer::Kind::kZeros, 0};
  if (leaf == "lora_a") {
    const auto read = static_cast<double>(std::max(tensor.type.shape[0], tensor.type.shape[1]));
    return {Initializer::Kind::kNormal, 1 / std::sqrt(read)};
  }

  constexpr double kStddev = 0.02;
  if (blocks > 0) {
    const bool residual = (name.starts_with("block.") || name.starts_with("draft.")) && (leaf == "o" || leaf == "down" || leaf == "proj" || leaf == "layer_proj" || leaf == "conv_out" || leaf == "scan_out");
    return {Initializer::Kind::kNormal,
            residual ? kStddev / std::sqrt(2.0 * static_cast<double>(blocks)) : kStddev};
  }
  const int64_t fan_in = tensor.type.shape[tensor.type.shape.rank() - 1];
  return {Initializer::Kind::kNormal, fan_in > 0 ? std::sqrt(2.0 / static_cast<double>(fan_in)) : kStddev};
}

}  // namespace tessera
