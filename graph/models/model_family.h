// Model families: architecture + hyper-parameters -> forward Graph. One family, one file, one line in the
// table.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "graph/base/result.h"
#include "graph/graph.h"
#include "graph/models/foreign_names.h"

namespace tessera {

class ConfigReader;
struct DecoderSizes;
struct EncoderSizes;

// Hyper-parameters in the letters of the shorthand: L layers, C channels, H heads, KV key-value heads, F
// feed-forward width, V vocabulary, T context length, D head size, E experts, K experts of a token. Families
// read the ones they need and fill in defaults.
struct ModelConfig {
  std::string family;                    // "llama", "gpt2", ...
  std::map<std::string, int64_t> sizes;  // "L" -> 12
  std::map<std::string, double> reals;   // "norm_eps", "rope_theta", "dropout", "capacity"
  std::map<std::string, bool> flags;     // "tied" (output projection = embedding)
  std::map<std::string, std::vector<int64_t>> lists;  // a number for each layer: "windows" -> {0, 4096, 0}
};

struct ModelFamily {
  std::string_view name;
  std::string_view example;  // "llama:L=22,C=2048,H=32,KV=4,F=5632,V=32000,T=2048"
  // Inputs "tokens", "positions" i32[B, T]; output "logits" f32[B, T, V], of decoders with head=0 or
  // classes=N "hidden" and "class_logits" (decoder.h); parameters named as in docs/reference/models.md.
  // Output "aux_loss" f32[] for a family with a loss of its own; add_token_loss adds it.
  Result<Graph> (*build)(const ModelConfig& config);
  // Names of its tensors in other projects' files; empty without any. Earlier tables take precedence.
  ForeignNames huggingface = {}, gguf = {};
  // The sizes of decoder.h for a model of this family, defaults included; null for other families.
  DecoderSizes (*decoder)(ConfigReader& config) = nullptr;
  // The sizes of encoder.h for a model of this family; null for other families.
  EncoderSizes (*encoder)(ConfigReader& config) = nullptr;
};

const ModelFamily* find_model_family(std::string_view name);
std::span<const ModelFamily> all_model_families();
// Returns the name of a family's parameter in GGUF files and in files about them
// (importance matrices); nullopt for another family, or a parameter of our format alone.
std::optional<ForeignName> gguf_name(std::string_view family, std::string_view parameter);

Result<ModelConfig> parse_shorthand(std::string_view text);  // "gpt2:L=12,C=768,H=12,V=50257,T=1024"
std::string to_text(const ModelConfig& config);               // a shorthand, which parses to the same
Result<Graph> build_model(const ModelConfig& config);

// Initializer: a parameter's initial distribution, so that memory can be filled in parts and in parallel.
struct Initializer {
  enum class Kind { kZeros, kOnes, kNormal } kind = Kind::kZeros;
  double stddev = 0;
};
// `blocks`: the model's number of blocks, by `block_count` over the names of all parameters.
Initializer initializer_for(const Graph& graph, TensorId parameter, int64_t blocks);
int64_t block_count(const Graph& graph);
inline Initializer initializer_for(const Graph& graph, TensorId parameter) {
  return initializer_for(graph, parameter, block_count(graph));
}

}  // namespace tessera
