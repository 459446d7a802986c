// Gemma 4: Gemma 3 whose layers without a window have heads of their own size, with rotations of a part of each pair's
// frequencies; scores are not scaled, values are normed. The last layers of E models use keys and values of earlier layers, and
// each layer has an embedding of its own; other models take values from the keys' projection. 26B-A4B has experts beside the MLP.
//   tokens, positions i32 [B, T] -> logits f32 [B, T, V]
#include <cmath>

#include "graph/models/decoder.h"

namespace tessera {
namespace {

DecoderSizes gemma4_sizes(ConfigReader& reader) {
  DecoderSizes m = read_decoder_sizes(reader);
  read_windows(reader, m, 6);
  read_layer_sizes(reader, m);
  read_shared_keys(reader, m);
  read_rope_scaling(reader, m);
  read_layer_inputs(reader, m);
  read_biases(reader, m);
  m.window_theta = reader.real("window_theta", 10000);
  m.logit_softcap = reader.real("logit_softcap", 0);
  m.attention_scale = 1;
  m.gelu_gate = m.head_norm = m.value_norm = m.branch_norm = true;
  m.embedding_scale = std::sqrt(static_cast<double>(m.C));
  if (reader.size("E", 0) == 0) return m;
  read_experts(reader, m, true, 0, 0);
  m.experts.FD = reader.size("FD", m.F);
  m.experts.beside_dense = m.experts.router_norm = m.experts.output_scale = true;
  return m;
}

constexpr std::string_view kProportional = R"({"rope_type": "proportional", "partial_rotary_factor": 0.25})";

void text_keys(HuggingfaceKeys& k, int64_t context, int64_t window) {
  k.decoder({.C = 2304, .F = 9216, .L = 30, .H = 8, .KV = 4, .V = 262144, .T = context, .norm_eps = 1e-6, .rope_theta = 1e6,
             .tied = true, .D = 256},
            {"hidden_activation", "gelu_pytorch_tanh", ""});
  k.attention_bias();
  k.cap("final_logit_softcapping", "logit_softcap", 0);
  k.windows({.otherwise = window, .must_have = true, .every = 6, .both_directions = R"("all")", .last_is_full = true});
  k.full_heads({.size = "global_head_dim",
                .otherwise = 512,
                .count = "num_global_key_value_heads",
                .are_values = "attention_k_eq_v"});
  k.size_or_zero("num_kv_shared_layers", "shared_kv", 0);
  k.double_widths("use_double_wide_mlp");
  k.rotations({.local_theta = 10000, .scaling = kProportional, .by_full_head = true});
}

constexpr HuggingfaceClass kGemma4Classes[] = {
    {"gemma4_text", "Gemma4ForCausalLM",
     [](HuggingfaceKeys& k) {
       text_keys(k, 131072, 512);
       k.size_or_zero("hidden_size_per_layer_input", "P", 256);
       if (k.our_size("P") > 0) k.size("vocab_size_per_layer_input", "PV", 262144);
       k.optional_experts({.enabled = "enable_moe_block",
                           .count = "num_experts",
                           .used = "top_k_experts",
                           .width = "moe_intermediate_size"});
     },
     0, "Gemma4Text"},
    {"gemma4_unified_text", "", [](HuggingfaceKeys& k) { text_keys(k, 262144, 1024); }, 0}};

void gemma4_gguf(GgufKeys& k) {
  k.decoder({.by_layer = true, .beside_dense = true});
  k.real("rope.freq_base_swa", "window_theta", 10000);
  k.cap("final_logit_softcapping", "logit_softcap");
  k.windows({.every = 6, .has_pattern = true});
  k.window_heads();
  k.shared_keys("attention.shared_kv_layers");
  k.size_or_zero("embedding_length_per_layer_input", "P", 0);
}
constexpr GgufArchitecture kGemma4Architectures[] = {
    {.name = "gemma4", .keys = gemma4_gguf, .has_experts = true, .factors = FactorTensors::kAlways, .optional_values = true}};

constexpr NameRule kGemma4Names[] = {
    {"block.#.attention_branch_norm", "model.layers.#.post_attention_layernorm.weight"},
    {"block.#.ffn_norm", "model.layers.#.pre_feedforward_layernorm.weight"},
    {"block.#.ffn_branch_norm", "model.layers.#.post_feedforward_layernorm.weight"},
    {"block.#.layer_scale", "model.layers.#.layer_scalar"},
    {"layer_embedding", "model.embed_tokens_per_layer.weight"},
    {"layer_projection", "model.per_layer_model_projection.weight"},
    {"layer_projection_norm", "model.per_layer_projection_norm.weight"},
    {"block.#.layer_gate", "model.layers.#.per_layer_input_gate.weight"},
    {"block.#.layer_proj", "model.layers.#.per_layer_projection.weight"},
    {"block.#.layer_norm", "model.layers.#.post_per_layer_input_norm.weight"},
    {"block.#.router", "model.layers.#.router.proj.weight"},
    {"block.#.router.scale", "model.layers.#.router.scale"},
    {"block.#.experts.scale", "model.layers.#.router.per_expert_scale"},
    {"block.#.experts.gate", "model.layers.#.experts.gate_up_proj"},
    {"block.#.experts.up", "model.layers.#.experts.gate_up_proj"},
    {"block.#.experts.down", "model.layers.#.experts.down_proj"},
    {"block.#.experts_norm", "model.layers.#.pre_feedforward_layernorm_2.weight"},
    {"block.#.dense_branch_norm", "model.layers.#.post_feedforward_layernorm_1.weight"},
    {"block.#.experts_branch_norm", "model.layers.#.post_feedforward_layernorm_2.weight"},
};

constexpr NameRule kGemma4GgufNames[] = {
    {"block.#.layer_scale", "blk.#.layer_output_scale.weight"},
    {"layer_embedding", "per_layer_token_embd.weight"},
    {"layer_projection", "per_layer_model_proj.weight"},
    {"layer_projection_norm", "per_layer_proj_norm.weight"},
    {"block.#.layer_gate", "blk.#.inp_gate.weight"},
    {"block.#.layer_proj", "blk.#.proj.weight"},
    {"block.#.layer_norm", "blk.#.post_norm.weight"},
    {"block.#.router.scale", "blk.#.ffn_gate_inp.scale"},
    {"block.#.experts.scale", "blk.#.ffn_down_exps.scale"},
    {"block.#.experts_norm", "blk.#.pre_ffw_norm_2.weight"},
    {"block.#.dense_branch_norm", "blk.#.post_ffw_norm_1.weight"},
    {"block.#.experts_branch_norm", "blk.#.post_ffw_norm_2.weight"},
};

const ModelFamily kGemma4Families[] = {{
    .name = "gemma4",
    .example = "gemma4:L=6,C=2304,H=8,KV=4,D=256,F=9216,V=262144,T=131072,window=512,head_sizes=256|256|256|256|256|512,tied,"
               "rope_half",
    .huggingface = {kGemma4Names, kDecoderHuggingfaceNames},
    .gguf = {kGemma4GgufNames, kDecoderGgufNames},
    .decoder = gemma4_sizes,
    .classes = kGemma4Classes,
    .architectures = kGemma4Architectures,
}};

}  // namespace

std::span<const ModelFamily> gemma4_families() { return kGemma4Families; }

}  // namespace tessera
