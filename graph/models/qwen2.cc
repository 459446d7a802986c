// Qwen2: Llama with biases at q, k and v.
//   tokens, positions i32 [B, T] -> logits f32 [B, T, V]
#include "graph/models/decoder.h"
#include "graph/models/families.h"

namespace tessera {

DecoderSizes qwen2_sizes(ConfigReader& reader) {
  DecoderSizes m = read_decoder_sizes(reader);
  read_windows(reader, m);
  read_rope_scaling(reader, m);
  m.qkv_bias = true;
  return m;
}

Result<Graph> build_qwen2(const ModelConfig& config) { return build_decoder(config, qwen2_sizes); }

}  // namespace tessera
