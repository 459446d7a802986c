// Llama: rms_norm before each half, rotary positions, grouped queries, SwiGLU.
//   tokens, positions i32 [B, T] -> logits f32 [B, T, V]
// Parameters are named as in docs/reference/models.md. Mistral is a Llama with a window, Llama 3 one with scaled
// rotations.
#include "graph/models/decoder.h"
#include "graph/models/families.h"

namespace tessera {

DecoderSizes llama_sizes(ConfigReader& reader) {
  DecoderSizes m = read_decoder_sizes(reader);
  read_windows(reader, m);
  read_rope_scaling(reader, m);
  read_biases(reader, m);
  m.mlp_bias = reader.flag("mlp_bias", false);
  return m;
}

Result<Graph> build_llama(const ModelConfig& config) { return build_decoder(config, llama_sizes); }

}  // namespace tessera
