// SmolLM3: Llama with rotation in some layers only (rope_layers).
//   tokens, positions i32 [B, T] -> logits f32 [B, T, V]
#include "graph/models/decoder.h"

namespace tessera {
namespace {

DecoderSizes smollm3_sizes(ConfigReader& reader) {
  DecoderSizes m = read_decoder_sizes(reader);
  read_windows(reader, m);
  read_rope_scaling(reader, m);
  m.rope_layers = reader.list("rope_layers", m.L, 0);
  read_biases(reader, m);
  m.mlp_bias = reader.flag("mlp_bias", false);
  return m;
}

constexpr HuggingfaceClass kSmollm3Classes[] = {
    {"smollm3", "SmolLM3ForCausalLM",
     [](HuggingfaceKeys& k) {
       k.decoder({.C = 2048, .F = 11008, .L = 36, .H = 16, .KV = 4, .V = 128256, .T = 32768, .norm_eps = 1e-6, .rope_theta = 2e6,
                  .tied = true});
       k.rotation();
       k.attention_bias();
       k.flag("mlp_bias", "mlp_bias", false);
       k.rope_layers("no_rope_layers", "no_rope_layer_interval", 4);
       k.windows({.layers_without = "rope_layers"});
     },
     128004}};

void smollm3_gguf(GgufKeys& k) {
  k.decoder();
  k.rotation();
  k.rope_layers(4);
  k.plain_scores();
}
constexpr GgufArchitecture kSmollm3Architectures[] = {{.name = "smollm3", .keys = smollm3_gguf, .rope_half = false, .optional_biases = true}};

const ModelFamily kSmollm3Families[] = {{
    .name = "smollm3",
    .example = "smollm3:L=36,C=2048,H=16,KV=4,F=11008,V=128256,T=65536,tied",
    .huggingface = {kDecoderHuggingfaceNames},
    .gguf = {kDecoderGgufNames},
    .decoder = smollm3_sizes,
    .classes = kSmollm3Classes,
    .architectures = kSmollm3Architectures,
}};

}  // namespace

std::span<const ModelFamily> smollm3_families() { return kSmollm3Families; }

}  // namespace tessera
