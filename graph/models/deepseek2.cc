// DeepSeek V2 and V3 (R1): latent attention, dense layers first, then layers of experts and of shared
// experts. V3 scores experts by a sigmoid, and chooses them by scores plus a bias, within the best groups.
//   tokens, positions i32 [B, T] -> logits f32 [B, T, V], aux_loss f32 [] where "aux" or "z" is above 0
#include "graph/base/text.h"
#include "graph/models/decoder.h"
#include "graph/models/families.h"

namespace tessera {

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
  e.groups = reader.size("groups", 1);
  e.groups_used = reader.size("groups_used", e.groups);
  e.group_best = reader.size("group_best", e.sigmoid ? 2 : 1);
  reader.check(!e.sigmoid || e.aux == 0, "aux is a loss of probabilities, wanted 0 with expert_sigmoid");
  return m;
}

Result<Graph> build_deepseek2(const ModelConfig& config) { return build_decoder(config, deepseek2_sizes); }

namespace {
constexpr NameRule kHuggingface[] = {
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
constexpr NameRule kGguf[] = {
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
}  // namespace
constexpr std::span<const NameRule> kDeepseek2HuggingfaceNames = kHuggingface, kDeepseek2GgufNames = kGguf;

}  // namespace tessera
