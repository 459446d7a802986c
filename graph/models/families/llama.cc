// Llama: rms_norm before each half, rotary positions, grouped queries, SwiGLU. Mistral is a Llama with a window, Llama 3 one
// with scaled rotations. Mixtral ("moe") has experts in place of the feed-forward half (experts.h).
//   tokens, positions i32 [B, T] -> logits f32 [B, T, V], of moe also aux_loss f32 []
// Parameters are named as in docs/reference/models.md.
#include "graph/models/decoder.h"

namespace tessera {
namespace {

DecoderSizes llama_sizes(ConfigReader& reader) {
  DecoderSizes m = read_decoder_sizes(reader);
  read_windows(reader, m);
  read_rope_scaling(reader, m);
  read_biases(reader, m);
  m.mlp_bias = reader.flag("mlp_bias", false);
  return m;
}

DecoderSizes moe_sizes(ConfigReader& reader) {
  DecoderSizes m = read_decoder_sizes(reader);
  read_windows(reader, m);
  read_rope_scaling(reader, m);
  read_experts(reader, m, true, 1.25, 0.01);
  return m;
}

constexpr HuggingfaceClass kLlamaClasses[] = {
    {"llama", "LlamaForCausalLM",
     [](HuggingfaceKeys& k) {
       k.decoder({.C = 4096, .F = 11008, .L = 32, .H = 32, .KV = 0, .V = 32000, .T = 2048, .norm_eps = 1e-6});
       k.rotation();
       k.attention_bias();
       k.flag("mlp_bias", "mlp_bias", false);
     }},
    {"mistral", "MistralForCausalLM",
     [](HuggingfaceKeys& k) {
       k.decoder({.C = 4096, .F = 14336, .L = 32, .H = 32, .KV = 8, .V = 32000, .T = 131072, .norm_eps = 1e-6});
       k.rotation();
       k.window(4096, true);
     }},
};
constexpr HuggingfaceClass kMixtralClasses[] = {
    {"mixtral", "MixtralForCausalLM",
     [](HuggingfaceKeys& k) {
       k.decoder({.C = 4096, .F = 14336, .L = 32, .H = 32, .KV = 8, .V = 32000, .T = 131072, .norm_eps = 1e-5, .rope_theta = 1e6});
       k.rotation();
       k.window({});
       k.router("num_local_experts", 8, 2);
     }},
};

void llama_gguf(GgufKeys& k) {
  k.decoder();
  k.rotation();
  k.window();
  k.plain_scores();
}
constexpr GgufArchitecture kLlamaArchitectures[] = {{.name = "llama",
                                                     .keys = llama_gguf,
                                                     .rope_half = false,
                                                     .factors = FactorTensors::kOne,
                                                     .biases = Biases::kAll, .optional_biases = true}};
constexpr GgufArchitecture kMixtralArchitectures[] = {
    {.name = "llama", .keys = llama_gguf, .rope_half = false, .has_experts = true, .factors = FactorTensors::kOne}};

constexpr NameRule kMixtralNames[] = {
    {"block.#.router", "model.layers.#.block_sparse_moe.gate.weight"},
    {"block.#.experts.gate", "model.layers.#.block_sparse_moe.experts.@.w1.weight"},
    {"block.#.experts.up", "model.layers.#.block_sparse_moe.experts.@.w3.weight"},
    {"block.#.experts.down", "model.layers.#.block_sparse_moe.experts.@.w2.weight"},
};

const ModelFamily kLlamaFamilies[] = {
    {.name = "llama",
     .example = "llama:L=22,C=2048,H=32,KV=4,F=5632,V=32000,T=2048",
     .huggingface = {kDecoderHuggingfaceNames},
     .gguf = {kDecoderGgufNames},
     .decoder = llama_sizes,
     .classes = kLlamaClasses,
     .architectures = kLlamaArchitectures},
    {.name = "moe",
     .example = "moe:L=32,C=4096,H=32,KV=8,F=14336,E=8,K=2,V=32000,T=4096",
     .huggingface = {kMixtralNames, kDecoderHuggingfaceNames},
     .gguf = {kDecoderGgufNames},
     .decoder = moe_sizes,
     .classes = kMixtralClasses,
     .architectures = kMixtralArchitectures},
};

}  // namespace

std::span<const ModelFamily> llama_families() { return kLlamaFamilies; }

}  // namespace tessera
