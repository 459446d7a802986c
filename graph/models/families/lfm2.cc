// LFM2: Llama with an rms_norm on every head of q and k, in most layers a causal convolution of few tokens in place of attention.
//   tokens, positions i32 [B, T] -> logits f32 [B, T, V]
#include "graph/models/decoder.h"

namespace tessera {
namespace {

constexpr int64_t kTaps = 3;

DecoderSizes lfm2_sizes(ConfigReader& reader) {
  DecoderSizes m = read_decoder_sizes(reader);
  read_rope_scaling(reader, m);
  read_recurrent(reader, m, Recurrent::kConvolution, 1, kTaps);
  m.head_norm = true;
  return m;
}

constexpr HuggingfaceClass kLfm2Classes[] = {
    {"lfm2", "Lfm2ForCausalLM",
     [](HuggingfaceKeys& k) {
       k.decoder({.C = 2560, .F = 12288, .L = 32, .H = 32, .KV = 8, .V = 65536, .T = 128000, .norm_eps = 1e-5, .rope_theta = 1e6,
                  .tied = true, .norm_key = "norm_eps"},
                 {.key = ""});
       k.renamed_size("block_ff_dim", "F");
       k.renamed_flag("tie_embedding", "tied");
       k.adjusted_width();
       k.rotation();
       k.recurrent({.type = "conv", .attention_layers = "full_attn_idxs"});
       k.size("conv_L_cache", "taps", kTaps);
       k.flag("conv_bias", "conv_bias", false);
     },
     0}};

void lfm2_gguf(GgufKeys& k) {
  k.decoder();
  k.rotation();
  k.size("shortconv.l_cache", "taps", {});
  k.plain_scores();
}
constexpr GgufArchitecture kLfm2Architectures[] = {{.name = "lfm2", .keys = lfm2_gguf, .recurrent_by_heads = true}};

constexpr NameRule kLfm2Huggingface[] = {
    {"final_norm", "model.embedding_norm.weight"},
    {"block.#.attention_norm", "model.layers.#.operator_norm.weight"},
    {"block.#.o", "model.layers.#.self_attn.out_proj.weight"},
    {"block.#.q_norm", "model.layers.#.self_attn.q_layernorm.weight"},
    {"block.#.k_norm", "model.layers.#.self_attn.k_layernorm.weight"},
    {"block.#.conv_b", "model.layers.#.conv.in_proj.weight"},
    {"block.#.conv_c", "model.layers.#.conv.in_proj.weight"},
    {"block.#.conv_x", "model.layers.#.conv.in_proj.weight"},
    {"block.#.conv_b.bias", "model.layers.#.conv.in_proj.bias"},
    {"block.#.conv_c.bias", "model.layers.#.conv.in_proj.bias"},
    {"block.#.conv_x.bias", "model.layers.#.conv.in_proj.bias"},
    {"block.#.conv", "model.layers.#.conv.conv.weight", ValueChange::kApart},
    {"block.#.conv.bias", "model.layers.#.conv.conv.bias"},
    {"block.#.conv_out", "model.layers.#.conv.out_proj.weight"},
    {"block.#.conv_out.bias", "model.layers.#.conv.out_proj.bias"},
    {"block.#.ffn_norm", "model.layers.#.ffn_norm.weight"},
    {"block.#.gate", "model.layers.#.feed_forward.w1.weight"},
    {"block.#.up", "model.layers.#.feed_forward.w3.weight"},
    {"block.#.down", "model.layers.#.feed_forward.w2.weight"},
};
constexpr NameRule kLfm2Gguf[] = {
    {"final_norm", "token_embd_norm.weight"},
    {"block.#.conv_b", "blk.#.shortconv.in_proj.weight"},
    {"block.#.conv_c", "blk.#.shortconv.in_proj.weight"},
    {"block.#.conv_x", "blk.#.shortconv.in_proj.weight"},
    {"block.#.conv", "blk.#.shortconv.conv.weight"},
    {"block.#.conv_out", "blk.#.shortconv.out_proj.weight"},
};

const ModelFamily kLfm2Families[] = {{
    .name = "lfm2",
    .example = "lfm2:L=16,C=2048,H=32,KV=8,F=8192,V=65536,T=128000,attention_every=3,tied,rope_half",
    .huggingface = {kLfm2Huggingface, kDecoderHuggingfaceNames},
    .gguf = {kLfm2Gguf, kDecoderGgufNames},
    .decoder = lfm2_sizes,
    .classes = kLfm2Classes,
    .architectures = kLfm2Architectures,
}};

}  // namespace

std::span<const ModelFamily> lfm2_families() { return kLfm2Families; }

}  // namespace tessera
