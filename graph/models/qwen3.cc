// Qwen3: Llama with an rms_norm on every head of q and k; its variant with experts is qwen3moe.
//   tokens, positions i32 [B, T] -> logits f32 [B, T, V], of qwen3moe also aux_loss f32 []
#include "graph/models/decoder.h"
#include "graph/models/families.h"

namespace tessera {

DecoderSizes qwen3_sizes(ConfigReader& reader) {
  DecoderSizes m = read_decoder_sizes(reader);
  read_windows(reader, m);
  read_rope_scaling(reader, m);
  read_biases(reader, m);
  m.head_norm = true;
  return m;
}

Result<Graph> build_qwen3(const ModelConfig& config) { return build_decoder(config, qwen3_sizes); }

DecoderSizes qwen3moe_sizes(ConfigReader& reader) {
  DecoderSizes m = qwen3_sizes(reader);
  read_experts(reader, m, true, 0, 0.001);
  read_dense_layers(reader, m);
  return m;
}

Result<Graph> build_qwen3moe(const ModelConfig& config) { return build_decoder(config, qwen3moe_sizes); }

}  // namespace tessera
