// Qwen3: Llama with an rms_norm on every head of q and k; its variant with experts is qwen3moe.
//   tokens, positions i32 [B, T] -> logits f32 [B, T, V], of qwen3moe also aux_loss f32 []
#include "graph/models/decoder.h"

namespace tessera {
namespace {

DecoderSizes qwen3_sizes(ConfigReader& reader) {
  DecoderSizes m = read_decoder_sizes(reader);
  read_windows(reader, m);
  read_rope_scaling(reader, m);
  read_biases(reader, m);
  m.head_norm = true;
  return m;
}

DecoderSizes qwen3moe_sizes(ConfigReader& reader) {
  DecoderSizes m = qwen3_sizes(reader);
  read_experts(reader, m, true, 0, 0.001);
  read_dense_layers(reader, m);
  return m;
}

constexpr HuggingfaceClass kQwen3Classes[] = {
    {"qwen3", "Qwen3ForCausalLM",
     [](HuggingfaceKeys& k) {
       k.decoder({.C = 4096, .F = 22016, .L = 32, .H = 32, .KV = 32, .V = 151936, .T = 32768, .norm_eps = 1e-6, .D = 128});
       k.rotation();
       k.windows_from_layer(4096, 28);
       k.attention_bias();
     }},
    // The text part of Qwen3-VL, whose positions in texts are equal on its three axes. Only read.
    {"qwen3_vl_text", "", [](HuggingfaceKeys& k) {
       k.decoder({.C = 4096, .F = 22016, .L = 32, .H = 32, .KV = 32, .V = 151936, .T = 128000, .norm_eps = 1e-6,
                  .rope_theta = 500000, .D = 128});
       k.rotation();
       k.attention_bias();
     }}};
constexpr HuggingfaceClass kQwen3moeClasses[] = {
    {"qwen3_moe", "Qwen3MoeForCausalLM",
     [](HuggingfaceKeys& k) {
       k.decoder({.C = 2048, .F = 6144, .L = 24, .H = 32, .KV = 4, .V = 151936, .T = 32768, .norm_eps = 1e-6});
       k.rotation();
       k.optional_window(4096);
       k.attention_bias();
       k.router("num_experts", 128, 8);
       k.flag("norm_topk_prob", "normalize", false);
       k.sparse_layers(768);
     }},
    // The text part of Qwen3-VL, likewise.
    {"qwen3_vl_moe_text", "", [](HuggingfaceKeys& k) {
       k.decoder({.C = 2048, .F = 5632, .L = 24, .H = 16, .KV = 16, .V = 151936, .T = 128000, .norm_eps = 1e-6, .rope_theta = 500000});
       k.rotation();
       k.attention_bias();
       k.router("num_experts", 60, 4);
       k.sparse_layers(1408);
     }}};

void qwen3_gguf(GgufKeys& k) {
  k.decoder();
  k.rotation();
  k.plain_scores();
}
// The text part of Qwen3-VL.
void qwen3_vl_gguf(GgufKeys& k) {
  qwen3_gguf(k);
  k.rope_sections("rope.dimension_sections");
}
constexpr GgufArchitecture kQwen3Architectures[] = {{.name = "qwen3", .keys = qwen3_gguf, .optional_biases = true},
                                                    {.name = "qwen3vl", .keys = qwen3_vl_gguf, .optional_biases = true}};
constexpr GgufArchitecture kQwen3moeArchitectures[] = {
    {.name = "qwen3moe", .keys = qwen3_gguf, .has_experts = true, .optional_biases = true},
    {.name = "qwen3vlmoe", .keys = qwen3_vl_gguf, .has_experts = true, .optional_biases = true}};

const ModelFamily kQwen3Families[] = {
    {.name = "qwen3",
     .example = "qwen3:L=28,C=1024,H=16,KV=8,D=128,F=3072,V=151936,T=40960,tied,rope_half",
     .huggingface = {kDecoderHuggingfaceNames},
     .gguf = {kDecoderGgufNames},
     .decoder = qwen3_sizes,
     .classes = kQwen3Classes,
     .architectures = kQwen3Architectures},
    {.name = "qwen3moe",
     .example = "qwen3moe:L=48,C=2048,H=32,KV=4,D=128,F=768,E=128,K=8,V=151936,T=40960,rope_half",
     .huggingface = {kDecoderHuggingfaceNames},
     .gguf = {kDecoderGgufNames},
     .decoder = qwen3moe_sizes,
     .classes = kQwen3moeClasses,
     .architectures = kQwen3moeArchitectures},
};

}  // namespace

std::span<const ModelFamily> qwen3_families() { return kQwen3Families; }

}  // namespace tessera
