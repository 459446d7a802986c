// Llama: rms_norm before each half, rotary positions, grouped queries, SwiGLU.
//   tokens, positions i32 [B, T] -> logits f32 [B, T, V]
// Parameters are named as in docs/models.md. Mistral is a Llama with a window, Llama 3 one with scaled rotations.
#include "graph/models/decoder.h"
#include "graph/models/families.h"

namespace tessera {

Result<Graph> build_llama(const ModelConfig& config) {
  LayerBuilder b;
  ConfigReader reader(config, b);
  DecoderSizes m = read_decoder_sizes(reader);
  read_windows(reader, m);
  read_rope_scaling(reader, m);
  m.qkv_bias = reader.flag("qkv_bias", false);
  m.o_bias = reader.flag("o_bias", false);
  m.mlp_bias = reader.flag("mlp_bias", false);
  return reader.done() ? build_decoder(b, m) : b.finish();
}

}  // namespace tessera
