// Gemma 3: Gemma 2 with an rms_norm on every head of q and k in place of the scores' soft cap, and a rotation of its
// own in layers with a window.
//   tokens, positions i32 [B, T] -> logits f32 [B, T, V]
#include "graph/models/decoder.h"
#include "graph/models/families.h"

namespace tessera {

DecoderSizes gemma3_sizes(ConfigReader& reader) {
  DecoderSizes m = later_gemma_sizes(reader, 6);
  m.window_theta = reader.real("window_theta", 10000);
  m.head_norm = true;
  return m;
}

Result<Graph> build_gemma3(const ModelConfig& config) { return build_decoder(config, gemma3_sizes); }

}  // namespace tessera
