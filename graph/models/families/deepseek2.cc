// DeepSeek V2 and V3 (R1), Kimi K2, and GLM-4.7-Flash, which is V3 with experts in any layers: latent attention, dense layers first,
// then layers of experts and of shared experts. V3 scores experts by a sigmoid, and chooses them by scores plus a bias, within the best
// groups.
//   tokens, positions i32 [B, T] -> logits f32 [B, T, V], aux_loss f32 [] where "aux" or "z" is above 0
#include "graph/base/text.h"
#include "graph/models/decoder.h"

namespace tessera {
namespace {

DecoderSizes deepseek2_sizes(ConfigReader& reader) {
  DecoderSizes m = read_decoder_sizes(reader);
  read_rope_scaling(reader, m);
  read_biases(reader, m);
  m.mlp_bias = reader.flag("mlp_bias", false);
  m.attention_scale = reader.real("attention_scale", 0);
  m.latent.KA = reader.size("KA");
  m.latent.QA = reader.size("QA", 0);
  m.latent.N = reader.size("N", m.D - m.R);
  m.latent.VD = reader.size("VD", m.latent.N);
  m.latent.norm_eps = reader.real("latent_norm_eps", 1e-6);
  reader.check(m.latent.N + m.R == m.D,
               format("heads of D = {} have R = {} numbers that are rotated and N = {} others", m.D, m.R,
                      m.latent.N));
  reader.check(m.KV == m.H, format("KV = {} heads of keys, wanted those of queries, H = {}", m.KV, m.H));
  read_experts(reader, m, false, 0, 0);
  read_dense_layers(reader, m);
  ExpertSizes& e = m.experts;
  e.FS = reader.size("FS", 0);
  e.scale = reader.real("expert_scale", 1);
  e.sigmoid = reader.flag("expert_sigmoid", false);
  e.selection_bias = reader.flag("selection_bias", e.sigmoid);
  read_expert_groups(reader, e);
  e.group_best = reader.size("group_best", e.sigmoid ? 2 : 1);
  read_draft_block(reader, m);
  reader.check(!e.sigmoid || e.aux == 0, "aux is a loss of probabilities, wanted 0 with expert_sigmoid");
  return m;
}

constexpr NameRule kDeepseek2Huggingface[] = {
    {"block.#.q_a", "model.layers.#.self_attn.q_a_proj.weight"},
    {"block.#.q_a.bias", "model.layers.#.self_attn.q_a_proj.bias"},
    {"block.#.q_a_norm", "model.layers.#.self_attn.q_a_layernorm.weight"},
    {"block.#.q_b", "model.layers.#.self_attn.q_b_proj.weight"},
    {"block.#.kv_a", "model.layers.#.self_attn.kv_a_proj_with_mqa.weight"},
    {"block.#.kv_a.bias", "model.layers.#.self_attn.kv_a_proj_with_mqa.bias"},
    {"block.#.kv_a_norm", "model.layers.#.self_attn.kv_a_layernorm.weight"},
    {"block.#.kv_b", "model.layers.#.self_attn.kv_b_proj.weight"},
    {"block.#.selection.bias", "model.layers.#.mlp.gate.e_score_correction_bias"},
    {"block.#.shared.gate", "model.layers.#.mlp.shared_experts.gate_proj.weight"},
    {"block.#.shared.up", "model.layers.#.mlp.shared_experts.up_proj.weight"},
    {"block.#.shared.down", "model.layers.#.mlp.shared_experts.down_proj.weight"},
};
constexpr NameRule kDeepseek2Gguf[] = {
    {"block.#.q_a", "blk.#.attn_q_a.weight"},
    {"block.#.q_a.bias", "blk.#.attn_q_a.bias"},
    {"block.#.q_a_norm", "blk.#.attn_q_a_norm.weight"},
    {"block.#.q_b", "blk.#.attn_q_b.weight"},
    {"block.#.kv_a", "blk.#.attn_kv_a_mqa.weight"},
    {"block.#.kv_a.bias", "blk.#.attn_kv_a_mqa.bias"},
    {"block.#.kv_a_norm", "blk.#.attn_kv_a_norm.weight"},
    {"block.#.kv_b", "blk.#.attn_kv_b.weight"},
    {"block.#.selection.bias", "blk.#.exp_probs_b.bias"},
};

// Widths of latent attention where a class's keys are absent.
struct LatentDefaults {
  int64_t N = 128, VD = 128, QA = 1536;
  std::string_view rotated_key = {};  // a second name of qk_rope_head_dim
};

void latent_keys(HuggingfaceKeys& k, const HuggingfaceDefaults& defaults, const LatentDefaults& latent) {
  k.decoder(defaults);
  k.size("qk_rope_head_dim", "R", 64);
  if (!latent.rotated_key.empty()) k.renamed_size(latent.rotated_key, "R");
  k.size("qk_nope_head_dim", "N", latent.N);
  k.head_size(k.our_size("R") + k.our_size("N"));
  k.size("v_head_dim", "VD", latent.VD);
  k.size("kv_lora_rank", "KA", 512);
  k.optional_size("q_lora_rank", "QA", latent.QA);
  k.rotation({.rotated = "R", .scales_scores = true});
  k.attention_bias();
}

// Keys common to both versions of DeepSeek.
void deepseek_keys(HuggingfaceKeys& k, const HuggingfaceDefaults& defaults, int64_t expert_width, int64_t shared_experts,
                   int64_t dense) {
  latent_keys(k, defaults, {});
  k.expert_width("moe_intermediate_size", expert_width);
  k.shared_experts("n_shared_experts", shared_experts);
  k.dense_first("first_k_dense_replace", dense);
  k.wants("moe_layer_freq", "1", "experts in every layer after the first ones");
}

// The router of V3.
struct RouterDefaults {
  int64_t experts, used, groups, groups_used;
  double scale;
};

void sigmoid_router(HuggingfaceKeys& k, const RouterDefaults& defaults) {
  k.size("n_routed_experts", "E", defaults.experts);
  k.size("num_experts_per_tok", "K", defaults.used);
  k.wants("scoring_func", "\"sigmoid\"", "scores that are sigmoids");
  k.wants("topk_method", "\"noaux_tc\"", "groups chosen by the sum of their two best");
  k.set_flag("expert_sigmoid", true);
  k.flag("norm_topk_prob", "normalize", true);
  k.positive("routed_scaling_factor", "expert_scale", defaults.scale);
  k.size("n_group", "groups", defaults.groups);
  k.size("topk_group", "groups_used", defaults.groups_used);
  k.draft_blocks({.key = "num_nextn_predict_layers"});
}

void deepseek_v3_keys(HuggingfaceKeys& k) {
  deepseek_keys(k, {.C = 7168, .F = 18432, .L = 61, .H = 128, .KV = 0, .V = 129280, .T = 4096, .norm_eps = 1e-6}, 2048, 1, 3);
  k.negated_flag("rope_interleave", "rope_half", true);
  sigmoid_router(k, {256, 8, 8, 4, 2.5});
}

void glm4_moe_lite_keys(HuggingfaceKeys& k) {
  latent_keys(k, {.C = 2048, .F = 10240, .L = 47, .H = 20, .KV = 0, .V = 154880, .T = 202752, .norm_eps = 1e-5},
              {.N = 192, .VD = 256, .QA = 768, .rotated_key = "head_dim"});
  k.negated_flag("rope_interleave", "rope_half", true);
  k.expert_width("moe_intermediate_size", 1536);
  k.shared_experts("n_shared_experts", 1);
  k.expert_layer_types("mlp_layer_types");
  sigmoid_router(k, {64, 4, 1, 1, 1.8});
  k.renamed_size("num_local_experts", "E");
}

constexpr HuggingfaceClass kDeepseek2Classes[] = {
    {"deepseek_v2", "DeepseekV2ForCausalLM",
     [](HuggingfaceKeys& k) {
       deepseek_keys(k, {.C = 4096, .F = 11008, .L = 32, .H = 32, .KV = 0, .V = 102400, .T = 2048, .norm_eps = 1e-6}, 1407, 2, 0);
       k.set_flag("rope_half", false);
       k.flag("mlp_bias", "mlp_bias", false);
       k.size("n_routed_experts", "E", 64);
       k.size("num_experts_per_tok", "K", {});
       k.wants("scoring_func", "\"softmax\"", "scores that are probabilities");
       k.wants("norm_topk_prob", "false", "weights as they are");
       k.positive("routed_scaling_factor", "expert_scale", 1);
       if (k.choice("topk_method", {"greedy", "group_limited_greedy"}, k.our_size("groups", 1) > 1 ? 1 : 0) == 1) {
         k.size("n_group", "groups", {});
         k.size("topk_group", "groups_used", {});
       }
     }},
    {"deepseek_v3", "DeepseekV3ForCausalLM", deepseek_v3_keys},
    {"glm4_moe_lite", "Glm4MoeLiteForCausalLM", glm4_moe_lite_keys},
    {"kimi_k2", "", deepseek_v3_keys},  // only read: transformers has no class of that name
};

void deepseek2_gguf(GgufKeys& k) {
  k.latent();
  k.rotation();
}
constexpr GgufArchitecture kDeepseek2Architectures[] = {{.name = "deepseek2", .keys = deepseek2_gguf, .rope_half = false, .has_experts = true, .optional_biases = true}};

const ModelFamily kDeepseek2Families[] = {{
    .name = "deepseek2",
    .example = "deepseek2:L=27,C=2048,H=16,D=192,R=64,KA=512,VD=128,F=1408,E=64,K=6,FS=2816,FD=10944,V=102400,T=163840",
    .huggingface = {kDeepseek2Huggingface, kDecoderHuggingfaceNames},
    .gguf = {kDeepseek2Gguf, kDecoderGgufNames},
    .decoder = deepseek2_sizes,
    .classes = kDeepseek2Classes,
    .architectures = kDeepseek2Architectures,
}};

}  // namespace

std::span<const ModelFamily> deepseek2_families() { return kDeepseek2Families; }

}  // namespace tessera
