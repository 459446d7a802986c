// Gemma 2: Gemma with an rms_norm also on the output of each half,
// soft caps on scores and logits, windows on every other layer.
//   tokens, positions i32 [B, T] -> logits f32 [B, T, V]
#include "graph/models/decoder.h"
#include "graph/models/families.h"

namespace tessera {

DecoderSizes later_gemma_sizes(ConfigReader& reader, size_t full_every) {
  DecoderSizes m = gemma_sizes(reader);
  read_windows(reader, m, full_every);
  m.attention_scale = reader.real("attention_scale", 0);
  m.softcap = reader.real("softcap", 0);
  m.logit_softcap = reader.real("logit_softcap", 0);
  m.branch_norm = true;
  return m;
}

DecoderSizes gemma2_sizes(ConfigReader& reader) { return later_gemma_sizes(reader, 2); }

Result<Graph> build_gemma2(const ModelConfig& config) { return build_decoder(config, gemma2_sizes); }

namespace {
constexpr NameRule kNames[] = {
    {"block.#.attention_norm", "model.layers.#.input_layernorm.weight", ValueChange::kPlusOne},
    {"block.#.attention_branch_norm", "model.layers.#.post_attention_layernorm.weight",
     ValueChange::kPlusOne},
    {"block.#.ffn_norm", "model.layers.#.pre_feedforward_layernorm.weight", ValueChange::kPlusOne},
    {"block.#.ffn_branch_norm", "model.layers.#.post_feedforward_layernorm.weight", ValueChange::kPlusOne},
    {"block.#.q_norm", "model.layers.#.self_attn.q_norm.weight", ValueChange::kPlusOne},
    {"block.#.k_norm", "model.layers.#.self_attn.k_norm.weight", ValueChange::kPlusOne},
    {"final_norm", "model.norm.weight", ValueChange::kPlusOne},
};
}  // namespace
constexpr std::span<const NameRule> kGemma2Names = kNames;

}  // namespace tessera
