// Qwen3.5 and its successors: three of four layers have the gated delta rule in place of attention, whose output is gated, and
// whose rotations turn a part of a head. Hugging Face stores a norm's weight less one, except that of the delta rule.
//   tokens, positions i32 [B, T] -> logits f32 [B, T, V]
#include "graph/models/decoder.h"

namespace tessera {
namespace {

constexpr int64_t kAttentionEvery = 4, kTaps = 4;

DecoderSizes qwen3_5_sizes(ConfigReader& reader) {
  DecoderSizes m = read_decoder_sizes(reader);
  read_rope_scaling(reader, m);
  read_biases(reader, m);
  read_recurrent(reader, m, Recurrent::kDelta, kAttentionEvery, kTaps);
  read_states(reader, m);
  m.head_norm = true;
  m.output_gate = true;
  return m;
}

constexpr HuggingfaceClass kQwen3_5Classes[] = {
    {"qwen3_5_text", "Qwen3_5ForCausalLM",
     [](HuggingfaceKeys& k) {
       k.decoder({.C = 4096, .F = 12288, .L = 32, .H = 16, .KV = 4, .V = 248320, .T = 32768, .norm_eps = 1e-6, .D = 256});
       k.rotation({.rotates_part = true, .part = 0.25});
       k.attention_bias();
       k.recurrent({.every_key = "full_attention_interval", .every = kAttentionEvery});
       k.size("linear_conv_kernel_dim", "taps", kTaps);
       k.size("linear_key_head_dim", "KS", 128);
       k.size("linear_value_head_dim", "VS", 128);
       k.size("linear_num_key_heads", "GS", 16);
       k.size("linear_num_value_heads", "HS", 32);
       k.skips("mtp.");
     },
     {},
     "Qwen3_5Text"}};

void qwen35_gguf(GgufKeys& k) {
  k.decoder();
  k.further_layers("nextn_predict_layers");
  k.rotation();
  k.recurrent_by_interval("full_attention_interval", kAttentionEvery);
  k.states();
  k.rope_sections("rope.dimension_sections");
  k.plain_scores();
}
constexpr GgufArchitecture kQwen3_5Architectures[] = {{.name = "qwen35", .keys = qwen35_gguf, .turned = true}};

constexpr NameRule kQwen3_5Huggingface[] = {
    {"final_norm", "model.norm.weight", ValueChange::kPlusOne},
    {"block.#.attention_norm", "model.layers.#.input_layernorm.weight", ValueChange::kPlusOne},
    {"block.#.ffn_norm", "model.layers.#.post_attention_layernorm.weight", ValueChange::kPlusOne},
    {"block.#.q_norm", "model.layers.#.self_attn.q_norm.weight", ValueChange::kPlusOne},
    {"block.#.k_norm", "model.layers.#.self_attn.k_norm.weight", ValueChange::kPlusOne},
    {"block.#.scan_q", "model.layers.#.linear_attn.in_proj_qkv.weight"},
    {"block.#.scan_k", "model.layers.#.linear_attn.in_proj_qkv.weight"},
    {"block.#.scan_v", "model.layers.#.linear_attn.in_proj_qkv.weight"},
    {"block.#.scan_z", "model.layers.#.linear_attn.in_proj_z.weight"},
    {"block.#.scan_beta", "model.layers.#.linear_attn.in_proj_b.weight"},
    {"block.#.scan_step", "model.layers.#.linear_attn.in_proj_a.weight"},
    {"block.#.conv_q", "model.layers.#.linear_attn.conv1d.weight", ValueChange::kApart},
    {"block.#.conv_k", "model.layers.#.linear_attn.conv1d.weight", ValueChange::kApart},
    {"block.#.conv_v", "model.layers.#.linear_attn.conv1d.weight", ValueChange::kApart},
    {"block.#.log_rate", "model.layers.#.linear_attn.A_log"},
    {"block.#.step_bias", "model.layers.#.linear_attn.dt_bias"},
    {"block.#.scan_norm", "model.layers.#.linear_attn.norm.weight"},
    {"block.#.scan_out", "model.layers.#.linear_attn.out_proj.weight"},
};
constexpr NameRule kQwen3_5Gguf[] = {
    {"block.#.ffn_norm", "blk.#.post_attention_norm.weight"},
    {"block.#.scan_q", "blk.#.attn_qkv.weight"},
    {"block.#.scan_k", "blk.#.attn_qkv.weight"},
    {"block.#.scan_v", "blk.#.attn_qkv.weight"},
    {"block.#.scan_z", "blk.#.attn_gate.weight"},
    {"block.#.scan_beta", "blk.#.ssm_beta.weight"},
    {"block.#.scan_step", "blk.#.ssm_alpha.weight"},
    {"block.#.conv_q", "blk.#.ssm_conv1d.weight"},
    {"block.#.conv_k", "blk.#.ssm_conv1d.weight"},
    {"block.#.conv_v", "blk.#.ssm_conv1d.weight"},
    {"block.#.log_rate", "blk.#.ssm_a", ValueChange::kLogNegated},
    {"block.#.step_bias", "blk.#.ssm_dt.bias"},
    {"block.#.scan_norm", "blk.#.ssm_norm.weight"},
    {"block.#.scan_out", "blk.#.ssm_out.weight"},
};

const ModelFamily kQwen3_5Families[] = {{
    .name = "qwen3_5",
    .example = "qwen3_5:L=24,C=1024,H=8,KV=2,D=256,R=64,F=3584,HS=16,VS=128,KS=128,V=248320,T=262144,tied,rope_half",
    .huggingface = {kQwen3_5Huggingface, kDecoderHuggingfaceNames},
    .gguf = {kQwen3_5Gguf, kDecoderGgufNames},
    .decoder = qwen3_5_sizes,
    .classes = kQwen3_5Classes,
    .architectures = kQwen3_5Architectures,
}};

}  // namespace

std::span<const ModelFamily> qwen3_5_families() { return kQwen3_5Families; }

}  // namespace tessera
