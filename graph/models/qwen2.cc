// Qwen2: Llama with biases at q, k and v.
//   tokens, positions i32 [B, T] -> logits f32 [B, T, V]
#include "graph/models/decoder.h"
#include "graph/models/families.h"

namespace tessera {

Result<Graph> build_qwen2(const ModelConfig& config) {
  LayerBuilder b;
  ConfigReader reader(config, b);
  DecoderSizes m = read_decoder_sizes(reader);
  read_windows(reader, m);
  read_rope_scaling(reader, m);
  m.qkv_bias = true;
  return reader.done() ? build_decoder(b, m) : b.finish();
}

}  // namespace tessera
