// Seed-OSS: Llama with biases at q, k and v, and one at o that is set apart from them.
//   tokens, positions i32 [B, T] -> logits f32 [B, T, V]
#include "graph/models/decoder.h"

namespace tessera {
namespace {

DecoderSizes seed_oss_sizes(ConfigReader& reader) {
  DecoderSizes m = read_decoder_sizes(reader);
  read_rope_scaling(reader, m);
  read_biases(reader, m);
  m.mlp_bias = reader.flag("mlp_bias", false);
  return m;
}

constexpr HuggingfaceClass kSeedOssClasses[] = {
    {"seed_oss", "SeedOssForCausalLM",
     [](HuggingfaceKeys& k) {
       k.decoder({.C = 4096, .F = 27648, .L = 64, .H = 80, .KV = 8, .V = 155136, .T = 524288, .norm_eps = 1e-6, .D = 128});
       k.rotation();
       k.flag("attention_bias", "qkv_bias", true);
       k.flag("attention_out_bias", "o_bias", false);
       k.flag("mlp_bias", "mlp_bias", false);
     },
     1}};

void seed_oss_gguf(GgufKeys& k) {
  k.decoder();
  k.rotation();
  k.plain_scores();
}
constexpr GgufArchitecture kSeedOssArchitectures[] = {
    {.name = "seed_oss", .keys = seed_oss_gguf, .biases = Biases::kQkv, .optional_biases = true}};

constexpr NameRule kSeedOssGguf[] = {{"block.#.ffn_norm", "blk.#.post_attention_norm.weight"}};

const ModelFamily kSeedOssFamilies[] = {{
    .name = "seed_oss",
    .example = "seed_oss:L=64,C=5120,H=80,KV=8,D=128,F=27648,V=155136,T=32768,rope_theta=1e7,norm_eps=1e-6,qkv_bias,rope_half",
    .huggingface = {kDecoderHuggingfaceNames},
    .gguf = {kSeedOssGguf, kDecoderGgufNames},
    .decoder = seed_oss_sizes,
    .classes = kSeedOssClasses,
    .architectures = kSeedOssArchitectures,
}};

}  // namespace

std::span<const ModelFamily> seed_oss_families() { return kSeedOssFamilies; }

}  // namespace tessera
