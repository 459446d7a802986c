// Gemma 3: Gemma 2 with an rms_norm on every head of q and k in place of the scores' soft cap, and a rotation of its
// own in layers with a window.
//   tokens, positions i32 [B, T] -> logits f32 [B, T, V]
#include "graph/models/decoder.h"
#include "graph/models/families.h"

namespace tessera {

DecoderSizes gemma3_sizes(ConfigReader& reader) {
  DecoderSizes m = read_decoder_sizes(reader);
  read_windows(reader, m, 6);
  read_rope_scaling(reader, m);
  m.qkv_bias = reader.flag("qkv_bias", false);
  m.o_bias = reader.flag("o_bias", false);
  m.window_theta = reader.real("window_theta", 10000);
  m.attention_scale = reader.real("attention_scale", 0);
  m.softcap = reader.real("softcap", 0);
  m.logit_softcap = reader.real("logit_softcap", 0);
  m.head_norm = m.branch_norm = m.gelu_gate = m.scaled_embedding = true;
  return m;
}

Result<Graph> build_gemma3(const ModelConfig& config) { return build_decoder(config, gemma3_sizes); }

}  // namespace tessera
