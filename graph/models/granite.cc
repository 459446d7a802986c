// Granite: Llama with factors on embeddings, scores, the outputs of halves, and logits.
//   tokens, positions i32 [B, T] -> logits f32 [B, T, V]
#include "graph/models/decoder.h"
#include "graph/models/families.h"

namespace tessera {

DecoderSizes granite_sizes(ConfigReader& reader) {
  DecoderSizes m = read_decoder_sizes(reader);
  read_rope_scaling(reader, m);
  read_biases(reader, m);
  m.mlp_bias = reader.flag("mlp_bias", false);
  m.attention_scale = reader.real("attention_scale", 0);
  m.embedding_scale = reader.real("embedding_scale", 1);
  m.residual_scale = reader.real("residual_scale", 1);
  m.logit_scale = reader.real("logit_scale", 1);
  return m;
}

Result<Graph> build_granite(const ModelConfig& config) { return build_decoder(config, granite_sizes); }

}  // namespace tessera
