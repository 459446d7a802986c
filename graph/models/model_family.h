// Model families: architecture + hyper-parameters -> forward Graph, and their files in other projects. One family, one
// file in graph/models/families.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "graph/base/result.h"
#include "graph/graph.h"
#include "graph/models/foreign_names.h"
#include "graph/models/gguf_keys.h"
#include "graph/models/huggingface_keys.h"
#include "graph/models/model_config.h"

namespace tessera {

class ConfigReader;
struct DecoderSizes;
struct EncoderSizes;

struct ModelFamily {
  std::string_view name;
  std::string_view example;  // "llama:L=22,C=2048,H=32,KV=4,F=5632,V=32000,T=2048"
  // Inputs "tokens", "positions" i32[B, T]; output "logits" f32[B, T, V], of decoders with head=0 or
  // classes=N "hidden" and "class_logits" (decoder.h); parameters named as in docs/reference/models.md.
  // Output "aux_loss" f32[] for a family with a loss of its own; add_token_loss adds it.
  // Null for families with sizes of decoder.h or encoder.h, which build them.
  Result<Graph> (*build)(const ModelConfig& config) = nullptr;
  void (*read)(ConfigReader& config) = nullptr;  // reads the sizes, for a family with `build`
  // Names of its tensors in other projects' files; empty without any. Earlier tables take precedence.
  ForeignNames huggingface = {}, gguf = {};
  // The sizes of decoder.h for a model of this family, defaults included; null for other families.
  DecoderSizes (*decoder)(ConfigReader& config) = nullptr;
  // The sizes of encoder.h for a model of this family; null for other families.
  EncoderSizes (*encoder)(ConfigReader& config) = nullptr;
  // Its classes in transformers and architectures in llama.cpp; writers take the first that can state the model.
  std::span<const HuggingfaceClass> classes = {};
  std::span<const GgufArchitecture> architectures = {};
};

const ModelFamily* find_model_family(std::string_view name);
std::span<const ModelFamily> all_model_families();
// The names with the draft block as the layer after the last.
ForeignNames with_draft_layer(const ForeignNames& names, const ModelConfig& config);
// Returns the name of a family's parameter in GGUF files and in files about them
// (importance matrices); nullopt for another family, or a parameter of our format alone.
std::optional<ForeignName> gguf_name(std::string_view family, std::string_view parameter);

Result<ModelConfig> parse_shorthand(std::string_view text);  // "gpt2:L=12,C=768,H=12,V=50257,T=1024"
std::string to_text(const ModelConfig& config);               // a shorthand, which parses to the same
Result<Graph> build_model(const ModelConfig& config);
// The configuration with the defaults of its family: each value that the family reads.
Result<ModelConfig> with_defaults(const ModelConfig& config);

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
