// Gemma: Llama with gelu gates and embeddings times sqrt(C). Hugging Face stores a norm's weight less one.
//   tokens, positions i32 [B, T] -> logits f32 [B, T, V]
#include <cmath>

#include "graph/models/decoder.h"
#include "graph/models/families.h"

namespace tessera {

DecoderSizes gemma_sizes(ConfigReader& reader) {
  DecoderSizes m = read_decoder_sizes(reader);
  read_rope_scaling(reader, m);
  read_biases(reader, m);
  m.gelu_gate = true;
  m.embedding_scale = std::sqrt(static_cast<double>(m.C));
  return m;
}

Result<Graph> build_gemma(const ModelConfig& config) { return build_decoder(config, gemma_sizes); }

namespace {
constexpr NameRule kNames[] = {
    {"block.#.attention_norm", "model.layers.#.input_layernorm.weight", ValueChange::kPlusOne},
    {"block.#.ffn_norm", "model.layers.#.post_attention_layernorm.weight", ValueChange::kPlusOne},
    {"final_norm", "model.norm.weight", ValueChange::kPlusOne},
};
}  // namespace
constexpr std::span<const NameRule> kGemmaNames = kNames;

}  // namespace tessera
