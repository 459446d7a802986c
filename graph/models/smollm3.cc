// SmolLM3: Llama with rotation in some layers only (rope_layers).
//   tokens, positions i32 [B, T] -> logits f32 [B, T, V]
#include "graph/models/decoder.h"
#include "graph/models/families.h"

namespace tessera {

DecoderSizes smollm3_sizes(ConfigReader& reader) {
  DecoderSizes m = read_decoder_sizes(reader);
  read_windows(reader, m);
  read_rope_scaling(reader, m);
  m.rope_layers = reader.list("rope_layers", m.L, 0);
  read_biases(reader, m);
  m.mlp_bias = reader.flag("mlp_bias", false);
  return m;
}

Result<Graph> build_smollm3(const ModelConfig& config) { return build_decoder(config, smollm3_sizes); }

}  // namespace tessera
