// Qwen2: Llama with biases at q, k and v. Qwen2-MoE has experts in place of feed-forward halves, and a shared expert,
// weighted by a sigmoid.
//   tokens, positions i32 [B, T] -> logits f32 [B, T, V], of qwen2moe also aux_loss f32 []
#include "graph/models/decoder.h"

namespace tessera {
namespace {

DecoderSizes qwen2_sizes(ConfigReader& reader) {
  DecoderSizes m = read_decoder_sizes(reader);
  read_windows(reader, m);
  read_rope_scaling(reader, m);
  m.qkv_bias = true;
  return m;
}

DecoderSizes qwen2moe_sizes(ConfigReader& reader) {
  DecoderSizes m = qwen2_sizes(reader);
  read_experts(reader, m, false, 0, 0.001);
  read_dense_layers(reader, m);
  m.experts.FS = reader.size("FS");
  m.experts.shared_gate = true;
  return m;
}

constexpr HuggingfaceClass kQwen2Classes[] = {
    {"qwen2", "Qwen2ForCausalLM", [](HuggingfaceKeys& k) {
       k.decoder({.C = 4096, .F = 22016, .L = 32, .H = 32, .KV = 32, .V = 151936, .T = 32768, .norm_eps = 1e-6});
       k.rotation();
       k.windows_from_layer(4096, 28);
     }}};
constexpr HuggingfaceClass kQwen2moeClasses[] = {
    {"qwen2_moe", "Qwen2MoeForCausalLM", [](HuggingfaceKeys& k) {
       k.decoder({.C = 2048, .F = 5632, .L = 24, .H = 16, .KV = 16, .V = 151936, .T = 32768, .norm_eps = 1e-6});
       k.rotation();
       k.alternating_windows(4096, 28);
       k.wants("qkv_bias", "true", "biases at q, k and v");
       k.router("num_experts", 60, 4);
       k.flag("norm_topk_prob", "normalize", false);
       k.size("shared_expert_intermediate_size", "FS", 5632);
       k.sparse_layers(1408);
     }}};

void qwen2_gguf(GgufKeys& k) {
  k.decoder();
  k.rotation();
  k.plain_scores();
}
constexpr GgufArchitecture kQwen2Architectures[] = {{.name = "qwen2", .keys = qwen2_gguf, .biases = Biases::kQkv}};
void qwen2moe_gguf(GgufKeys& k) {
  k.decoder();
  k.rotation();
  k.set_flag("normalize", false);
  k.size("expert_shared_feed_forward_length", "FS", k.stated_size("feed_forward_length"));
  k.plain_scores();
}
constexpr GgufArchitecture kQwen2moeArchitectures[] = {{.name = "qwen2moe", .keys = qwen2moe_gguf, .has_experts = true, .biases = Biases::kQkv}};

constexpr NameRule kQwen2moeHuggingface[] = {
    {"block.#.shared.gate", "model.layers.#.mlp.shared_expert.gate_proj.weight"},
    {"block.#.shared.up", "model.layers.#.mlp.shared_expert.up_proj.weight"},
    {"block.#.shared.down", "model.layers.#.mlp.shared_expert.down_proj.weight"},
    {"block.#.shared.router", "model.layers.#.mlp.shared_expert_gate.weight"},
};
constexpr NameRule kQwen2moeGguf[] = {{"block.#.shared.router", "blk.#.ffn_gate_inp_shexp.weight"}};

const ModelFamily kQwen2Families[] = {
    {.name = "qwen2",
     .example = "qwen2:L=24,C=896,H=14,KV=2,F=4864,V=151936,T=32768,tied,rope_half",
     .huggingface = {kDecoderHuggingfaceNames},
     .gguf = {kDecoderGgufNames},
     .decoder = qwen2_sizes,
     .classes = kQwen2Classes,
     .architectures = kQwen2Architectures},
    {.name = "qwen2moe",
     .example = "qwen2moe:L=24,C=2048,H=16,F=1408,E=60,K=4,FS=5632,V=151936,T=8192,rope_half",
     .huggingface = {kQwen2moeHuggingface, kDecoderHuggingfaceNames},
     .gguf = {kQwen2moeGguf, kDecoderGgufNames},
     .decoder = qwen2moe_sizes,
     .classes = kQwen2moeClasses,
     .architectures = kQwen2moeArchitectures},
};

}  // namespace

std::span<const ModelFamily> qwen2_families() { return kQwen2Families; }

}  // namespace tessera
