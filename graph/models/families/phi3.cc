// Phi-3: Llama whose files hold q, k and v as one tensor, and gate and up as another.
//   tokens, positions i32 [B, T] -> logits f32 [B, T, V]
#include "graph/models/decoder.h"

namespace tessera {
namespace {

DecoderSizes phi3_sizes(ConfigReader& reader) {
  DecoderSizes m = read_decoder_sizes(reader);
  read_windows(reader, m);
  read_rope_scaling(reader, m);
  return m;
}

constexpr NameRule kPhi3Huggingface[] = {
    {"block.#.q", "model.layers.#.self_attn.qkv_proj.weight"},
    {"block.#.k", "model.layers.#.self_attn.qkv_proj.weight"},
    {"block.#.v", "model.layers.#.self_attn.qkv_proj.weight"},
    {"block.#.gate", "model.layers.#.mlp.gate_up_proj.weight"},
    {"block.#.up", "model.layers.#.mlp.gate_up_proj.weight"},
};
constexpr NameRule kPhi3Gguf[] = {
    {"block.#.q", "blk.#.attn_qkv.weight"}, {"block.#.k", "blk.#.attn_qkv.weight"},
    {"block.#.v", "blk.#.attn_qkv.weight"}, {"block.#.gate", "blk.#.ffn_up.weight"},
    {"block.#.up", "blk.#.ffn_up.weight"},
};

constexpr HuggingfaceClass kPhi3Classes[] = {
    {"phi3", "Phi3ForCausalLM",
     [](HuggingfaceKeys& k) {
       k.decoder({.C = 3072, .F = 8192, .L = 32, .H = 32, .KV = 0, .V = 32064, .T = 4096, .norm_eps = 1e-5});
       k.rotation({.original_context = 4096, .rotates_part = true, .only_longrope = true});
       k.window({});
     },
     32000}};

void phi3_gguf(GgufKeys& k) {
  k.decoder();
  k.factor_tensors();
  k.window();
  k.plain_scores();
}
constexpr GgufArchitecture kPhi3Architectures[] = {{.name = "phi3", .keys = phi3_gguf, .factors = FactorTensors::kTwo}};

const ModelFamily kPhi3Families[] = {{
    .name = "phi3",
    .example = "phi3:L=32,C=3072,H=32,F=8192,V=32064,T=4096,rope_half",
    .huggingface = {kPhi3Huggingface, kDecoderHuggingfaceNames},
    .gguf = {kPhi3Gguf, kDecoderGgufNames},
    .decoder = phi3_sizes,
    .classes = kPhi3Classes,
    .architectures = kPhi3Architectures,
}};

}  // namespace

std::span<const ModelFamily> phi3_families() { return kPhi3Families; }

}  // namespace tessera
