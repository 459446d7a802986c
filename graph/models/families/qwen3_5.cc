// Qwen3-Next, Qwen3.5 and their successors: three of four layers have the gated delta rule in place of attention, whose output is gated, and
// whose rotations turn a part of a head. Hugging Face stores a norm's weight less one, except that of the delta rule.
//   tokens, positions i32 [B, T] -> logits f32 [B, T, V], with experts also aux_loss f32 []
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
  read_draft_block(reader, m);
  return m;
}

DecoderSizes qwen3_5moe_sizes(ConfigReader& reader) {
  DecoderSizes m = qwen3_5_sizes(reader);
  read_experts(reader, m, true, 0, 0.001);
  read_dense_layers(reader, m);
  m.experts.FS = reader.size("FS");
  m.experts.shared_gate = true;
  return m;
}

void recurrent_keys(HuggingfaceKeys& k) {
  k.rotation({.rotates_part = true, .part = 0.25});
  k.attention_bias();
  k.recurrent({.every_key = "full_attention_interval", .every = kAttentionEvery});
  k.size("linear_conv_kernel_dim", "taps", kTaps);
  k.size("linear_key_head_dim", "KS", 128);
  k.size("linear_value_head_dim", "VS", 128);
  k.size("linear_num_key_heads", "GS", 16);
  k.size("linear_num_value_heads", "HS", 32);
  k.draft_blocks({.key = "mtp_num_hidden_layers", .otherwise = 1, .beginning = "mtp.", .tables_key = "mtp_use_dedicated_embeddings"});
}

constexpr HuggingfaceClass kQwen3_5Classes[] = {
    {"qwen3_5_text", "Qwen3_5ForCausalLM",
     [](HuggingfaceKeys& k) {
       k.decoder({.C = 4096, .F = 12288, .L = 32, .H = 16, .KV = 4, .V = 248320, .T = 32768, .norm_eps = 1e-6, .D = 256});
       recurrent_keys(k);
     },
     {},
     "Qwen3_5Text"}};
constexpr HuggingfaceClass kQwen3_5moeClasses[] = {
    {"qwen3_5_moe_text", "Qwen3_5MoeForCausalLM",
     [](HuggingfaceKeys& k) {
       k.decoder({.C = 2048, .F = 512, .L = 40, .H = 16, .KV = 2, .V = 248320, .T = 32768, .norm_eps = 1e-6, .D = 256});
       recurrent_keys(k);
       k.router("num_experts", 256, 8);
       k.size("shared_expert_intermediate_size", "FS", 512);
       k.expert_width("moe_intermediate_size", 512);
     },
     {},
     "Qwen3_5MoeText"}};
constexpr HuggingfaceClass kQwen3nextClasses[] = {
    {"qwen3_next", "Qwen3NextForCausalLM", [](HuggingfaceKeys& k) {
       k.decoder({.C = 2048, .F = 5632, .L = 48, .H = 16, .KV = 2, .V = 151936, .T = 32768, .norm_eps = 1e-6, .D = 256});
       recurrent_keys(k);
       k.router("num_experts", 512, 10);
       k.flag("norm_topk_prob", "normalize", true);
       k.size("shared_expert_intermediate_size", "FS", 512);
       k.sparse_layers(512);
     }}};

void qwen35_gguf(GgufKeys& k) {
  k.decoder();
  k.draft_blocks("nextn_predict_layers");
  k.rotation();
  k.recurrent_by_interval("full_attention_interval", kAttentionEvery);
  k.states();
  k.plain_scores();
}
void qwen35_sections_gguf(GgufKeys& k) {
  qwen35_gguf(k);
  k.rope_sections("rope.dimension_sections");
}
void qwen35moe_gguf(GgufKeys& k) {
  qwen35_sections_gguf(k);
  k.size("expert_shared_feed_forward_length", "FS", {});
}
void qwen3next_gguf(GgufKeys& k) {
  qwen35_gguf(k);
  k.size("expert_shared_feed_forward_length", "FS", {});
}
constexpr GgufArchitecture kQwen3_5Architectures[] = {{.name = "qwen35", .keys = qwen35_sections_gguf, .turned = true}};
constexpr GgufArchitecture kQwen3_5moeArchitectures[] = {{.name = "qwen35moe", .keys = qwen35moe_gguf, .has_experts = true, .turned = true}};
constexpr GgufArchitecture kQwen3nextArchitectures[] = {{.name = "qwen3next", .keys = qwen3next_gguf, .has_experts = true, .dense_layers = true}};

constexpr NameRule kQwen3_5Huggingface[] = {
    {"final_norm", "model.norm.weight", ValueChange::kPlusOne},
    {"block.#.attention_norm", "model.layers.#.input_layernorm.weight", ValueChange::kPlusOne},
    {"block.#.ffn_norm", "model.layers.#.post_attention_layernorm.weight", ValueChange::kPlusOne},
    {"block.#.q_norm", "model.layers.#.self_attn.q_norm.weight", ValueChange::kPlusOne},
    {"block.#.k_norm", "model.layers.#.self_attn.k_norm.weight", ValueChange::kPlusOne},
    {"draft.projection", "mtp.fc.weight"},
    {"draft.embedding_norm", "mtp.pre_fc_norm_embedding.weight", ValueChange::kPlusOne},
    {"draft.hidden_norm", "mtp.pre_fc_norm_hidden.weight", ValueChange::kPlusOne},
    {"draft.final_norm", "mtp.norm.weight", ValueChange::kPlusOne},
    {"draft.token_embedding", "mtp.embed_tokens.weight"},
    {"draft.output", "mtp.lm_head.weight"},
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

constexpr NameRule kExpertsHuggingface[] = {
    {"block.#.shared.gate", "model.layers.#.mlp.shared_expert.gate_proj.weight"},
    {"block.#.shared.up", "model.layers.#.mlp.shared_expert.up_proj.weight"},
    {"block.#.shared.down", "model.layers.#.mlp.shared_expert.down_proj.weight"},
    {"block.#.shared.router", "model.layers.#.mlp.shared_expert_gate.weight"},
    // qwen3_next stores q, k, v and z in one matrix, key head by key head.
    {"block.#.scan_q", "model.layers.#.linear_attn.in_proj_qkvz.weight", ValueChange::kByKeyHead},
    {"block.#.scan_k", "model.layers.#.linear_attn.in_proj_qkvz.weight", ValueChange::kByKeyHead},
    {"block.#.scan_v", "model.layers.#.linear_attn.in_proj_qkvz.weight", ValueChange::kByKeyHead},
    {"block.#.scan_z", "model.layers.#.linear_attn.in_proj_qkvz.weight", ValueChange::kByKeyHead},
    {"block.#.scan_beta", "model.layers.#.linear_attn.in_proj_ba.weight", ValueChange::kByKeyHead},
    {"block.#.scan_step", "model.layers.#.linear_attn.in_proj_ba.weight", ValueChange::kByKeyHead},
};
constexpr std::span<const NameRule> kSharedExperts = std::span(kExpertsHuggingface).first(4);
constexpr NameRule kExpertsGguf[] = {
    {"block.#.shared.router", "blk.#.ffn_gate_inp_shexp.weight"},
    {"block.#.scan_beta", "blk.#.ssm_ba.weight", ValueChange::kByKeyHead},
    {"block.#.scan_step", "blk.#.ssm_ba.weight", ValueChange::kByKeyHead},
};
constexpr std::span<const NameRule> kSharedRouter = std::span(kExpertsGguf).first(1);

const ModelFamily kQwen3_5Families[] = {
    {.name = "qwen3_5",
     .example = "qwen3_5:L=24,C=1024,H=8,KV=2,D=256,R=64,F=3584,HS=16,VS=128,V=248320,T=262144,tied,rope_half",
     .huggingface = ForeignNames(kQwen3_5Huggingface, kDecoderHuggingfaceNames).with_draft_beginning("mtp.layers.0."),
     .gguf = {kQwen3_5Gguf, kDecoderGgufNames},
     .decoder = qwen3_5_sizes,
     .classes = kQwen3_5Classes,
     .architectures = kQwen3_5Architectures},
    {.name = "qwen3_5moe",
     .example = "qwen3_5moe:L=40,C=2048,H=16,KV=2,D=256,R=64,F=512,E=256,K=8,FS=512,HS=32,VS=128,GS=16,V=248320,T=262144,rope_half",
     .huggingface = ForeignNames(kSharedExperts, kQwen3_5Huggingface, kDecoderHuggingfaceNames).with_draft_beginning("mtp.layers.0."),
     .gguf = {kSharedRouter, kQwen3_5Gguf, kDecoderGgufNames},
     .decoder = qwen3_5moe_sizes,
     .classes = kQwen3_5moeClasses,
     .architectures = kQwen3_5moeArchitectures},
    {.name = "qwen3next",
     .example = "qwen3next:L=48,C=2048,H=16,KV=2,D=256,R=64,F=512,E=512,K=10,FS=512,HS=32,VS=128,GS=16,V=151936,T=262144,rope_half",
     .huggingface = ForeignNames(kExpertsHuggingface, kQwen3_5Huggingface, kDecoderHuggingfaceNames).with_draft_beginning("mtp.layers.0."),
     .gguf = {kExpertsGguf, kQwen3_5Gguf, kDecoderGgufNames},
     .decoder = qwen3_5moe_sizes,
     .classes = kQwen3nextClasses,
     .architectures = kQwen3nextArchitectures},
};

}  // namespace

std::span<const ModelFamily> qwen3_5_families() { return kQwen3_5Families; }

}  // namespace tessera
