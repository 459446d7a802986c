// OLMo 2 and 3: Llama without a norm before each half; rms_norm on its output, and on q and on
// k across heads. OLMo 3 has windows, and a rotation of its own, unscaled, in layers with one.
//   tokens, positions i32 [B, T] -> logits f32 [B, T, V]
#include "graph/models/decoder.h"
#include "graph/models/families.h"

namespace tessera {

DecoderSizes olmo2_sizes(ConfigReader& reader) {
  DecoderSizes m = read_decoder_sizes(reader);
  read_windows(reader, m);
  read_rope_scaling(reader, m);
  read_biases(reader, m);
  m.window_theta = reader.real("window_theta", 0);
  m.input_norm = false;
  m.branch_norm = m.wide_norm = true;
  return m;
}

Result<Graph> build_olmo2(const ModelConfig& config) { return build_decoder(config, olmo2_sizes); }

namespace {
constexpr NameRule kNames[] = {
    {"block.#.attention_branch_norm", "model.layers.#.post_attention_layernorm.weight"},
    {"block.#.ffn_branch_norm", "model.layers.#.post_feedforward_layernorm.weight"},
};
}  // namespace
constexpr std::span<const NameRule> kOlmo2Names = kNames;

}  // namespace tessera
