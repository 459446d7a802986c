// Qwen3: Llama with an rms_norm on every head of q and k; its variant with experts is qwen3moe.
//   tokens, positions i32 [B, T] -> logits f32 [B, T, V], of qwen3moe also aux_loss f32 []
#include "graph/models/decoder.h"
#include "graph/models/families.h"

namespace tessera {

Result<Graph> build_qwen3(const ModelConfig& config) {
  LayerBuilder b;
  ConfigReader reader(config, b);
  DecoderSizes m = read_decoder_sizes(reader);
  read_windows(reader, m);
  read_rope_scaling(reader, m);
  m.qkv_bias = reader.flag("qkv_bias", false);
  m.o_bias = reader.flag("o_bias", false);
  m.head_norm = true;
  return reader.done() ? build_decoder(b, m) : b.finish();
}

Result<Graph> build_qwen3moe(const ModelConfig& config) {
  LayerBuilder b;
  ConfigReader reader(config, b);
  DecoderSizes m = read_decoder_sizes(reader);
  read_windows(reader, m);
  read_rope_scaling(reader, m);
  read_experts(reader, m, true, 0, 0.001);
  m.qkv_bias = reader.flag("qkv_bias", false);
  m.o_bias = reader.flag("o_bias", false);
  m.head_norm = true;
  return reader.done() ? build_decoder(b, m) : b.finish();
}

}  // namespace tessera
