// Nemotron-H and Nemotron 3: layers of one half each, a state space (Mamba-2), attention without rotation, or a feed-forward half
// without gate, perhaps of experts, whose input may be a projection to a narrower width.
//   tokens, positions i32 [B, T] -> logits f32 [B, T, V]
#include "graph/models/decoder.h"

namespace tessera {
namespace {

DecoderSizes nemotron_h_sizes(ConfigReader& reader) {
  constexpr int64_t kTaps = 4;
  DecoderSizes m = read_decoder_sizes(reader);
  read_biases(reader, m);
  m.mlp_bias = reader.flag("mlp_bias", false);
  read_recurrent(reader, m, Recurrent::kStateSpace, 8, kTaps);
  read_states(reader, m);
  read_halves(reader, m);
  if (reader.has("E")) {
    read_experts(reader, m, true, 0, 0);
    read_dense_layers(reader, m);
    ExpertSizes& e = m.experts;
    e.FS = reader.size("FS", 0);
    e.M = reader.size("M", 0);
    e.scale = reader.real("expert_scale", 1);
    read_expert_groups(reader, e);
    e.sigmoid = e.selection_bias = true;
  }
  m.squared_relu = true;
  m.rope_layers.assign(static_cast<size_t>(m.L), 0);
  return m;
}

constexpr HuggingfaceClass kNemotronHClasses[] = {
    {"nemotron_h", "NemotronHForCausalLM",
     [](HuggingfaceKeys& k) {
       k.decoder({.C = 4096, .F = 21504, .L = 4, .H = 32, .KV = 8, .V = 131072, .T = 4096, .norm_eps = 1e-5, .D = 128,
                  .norm_key = "layer_norm_epsilon"},
                 {"mlp_hidden_act", "relu2", ""});
       k.single_halves("layers_block_type", "hybrid_override_pattern");
       k.attention_bias();
       k.flag("mlp_bias", "mlp_bias", false);
       k.size("mamba_num_heads", "HS", 128);
       k.size("mamba_head_dim", "VS", 64);
       k.size("n_groups", "GS", 8);
       k.size("ssm_state_size", "KS", 128);
       k.size("conv_kernel", "taps", 4);
       k.flag("use_conv_bias", "conv_bias", true);
       k.wants("use_bias", "false", "state spaces without biases at their products");
       k.wants("mamba_proj_bias", "false", "state spaces without biases at their products");
       k.wants("mamba_hidden_act", R"("silu")", "state spaces with silu");
       k.step_limits("time_step_limit");
       if (!k.has_expert_layers()) return;
       k.expert_width("moe_intermediate_size", 7688);
       k.router("n_routed_experts", 8, 2, 0);  // transformers' class adds no balance loss
       k.size("moe_shared_expert_intermediate_size", "FS", 7688);
       k.optional_size("moe_latent_size", "M", 0);
       k.real("routed_scaling_factor", "expert_scale", 1);
       k.flag("norm_topk_prob", "normalize", true);
       k.size("n_group", "groups", 1);
       k.size("topk_group", "groups_used", 1);
     },
     0}};

void nemotron_h_gguf(GgufKeys& k) {
  k.decoder({.norm_twice = true});
  k.states();
  k.set_flag("conv_bias", true);
  k.plain_scores();
}
void nemotron_h_moe_gguf(GgufKeys& k) {
  nemotron_h_gguf(k);
  k.size("expert_shared_feed_forward_length", "FS", {});
  k.factor("expert_weights_scale", "expert_scale");
  k.flag("expert_weights_norm", "normalize", false);
  k.optional_size("moe_latent_size", "M");
  k.size("expert_group_count", "groups", 1);
  k.size("expert_group_used_count", "groups_used", 1);
}
constexpr GgufArchitecture kNemotronHArchitectures[] = {
    {.name = "nemotron_h", .keys = nemotron_h_gguf, .optional_biases = true, .single_halves = true, .recurrent_by_heads = true},
    {.name = "nemotron_h_moe",
     .keys = nemotron_h_moe_gguf,
     .has_experts = true,
     .optional_biases = true,
     .sigmoid_router = true,
     .single_halves = true,
     .recurrent_by_heads = true,
     .dense_layers = true}};

constexpr NameRule kNemotronHHuggingface[] = {
    {"token_embedding", "backbone.embeddings.weight"},
    {"final_norm", "backbone.norm_f.weight"},
    {"block.#.norm", "backbone.layers.#.norm.weight"},
    {"block.#.q", "backbone.layers.#.mixer.q_proj.weight"},
    {"block.#.k", "backbone.layers.#.mixer.k_proj.weight"},
    {"block.#.v", "backbone.layers.#.mixer.v_proj.weight"},
    {"block.#.o", "backbone.layers.#.mixer.o_proj.weight"},
    {"block.#.q.bias", "backbone.layers.#.mixer.q_proj.bias"},
    {"block.#.k.bias", "backbone.layers.#.mixer.k_proj.bias"},
    {"block.#.v.bias", "backbone.layers.#.mixer.v_proj.bias"},
    {"block.#.o.bias", "backbone.layers.#.mixer.o_proj.bias"},
    {"block.#.up", "backbone.layers.#.mixer.up_proj.weight"},
    {"block.#.down", "backbone.layers.#.mixer.down_proj.weight"},
    {"block.#.up.bias", "backbone.layers.#.mixer.up_proj.bias"},
    {"block.#.down.bias", "backbone.layers.#.mixer.down_proj.bias"},
    {"block.#.router", "backbone.layers.#.mixer.gate.weight"},
    {"block.#.selection.bias", "backbone.layers.#.mixer.gate.e_score_correction_bias"},
    {"block.#.experts.in", "backbone.layers.#.mixer.fc1_latent_proj.weight"},
    {"block.#.experts.out", "backbone.layers.#.mixer.fc2_latent_proj.weight"},
    {"block.#.experts.up", "backbone.layers.#.mixer.experts.@.up_proj.weight"},
    {"block.#.experts.down", "backbone.layers.#.mixer.experts.@.down_proj.weight"},
    {"block.#.shared.up", "backbone.layers.#.mixer.shared_experts.up_proj.weight"},
    {"block.#.shared.down", "backbone.layers.#.mixer.shared_experts.down_proj.weight"},
    {"block.#.scan_z", "backbone.layers.#.mixer.in_proj.weight"},
    {"block.#.scan_v", "backbone.layers.#.mixer.in_proj.weight"},
    {"block.#.scan_k", "backbone.layers.#.mixer.in_proj.weight"},
    {"block.#.scan_q", "backbone.layers.#.mixer.in_proj.weight"},
    {"block.#.scan_step", "backbone.layers.#.mixer.in_proj.weight"},
    {"block.#.conv_v", "backbone.layers.#.mixer.conv1d.weight", ValueChange::kApart},
    {"block.#.conv_k", "backbone.layers.#.mixer.conv1d.weight", ValueChange::kApart},
    {"block.#.conv_q", "backbone.layers.#.mixer.conv1d.weight", ValueChange::kApart},
    {"block.#.conv_v.bias", "backbone.layers.#.mixer.conv1d.bias"},
    {"block.#.conv_k.bias", "backbone.layers.#.mixer.conv1d.bias"},
    {"block.#.conv_q.bias", "backbone.layers.#.mixer.conv1d.bias"},
    {"block.#.log_rate", "backbone.layers.#.mixer.A_log"},
    {"block.#.step_bias", "backbone.layers.#.mixer.dt_bias"},
    {"block.#.skip", "backbone.layers.#.mixer.D"},
    {"block.#.scan_norm", "backbone.layers.#.mixer.norm.weight"},
    {"block.#.scan_out", "backbone.layers.#.mixer.out_proj.weight"},
};
constexpr NameRule kNemotronHGguf[] = {
    {"block.#.norm", "blk.#.attn_norm.weight"},
    {"block.#.selection.bias", "blk.#.exp_probs_b.bias"},
    {"block.#.experts.in", "blk.#.ffn_latent_down.weight"},
    {"block.#.experts.out", "blk.#.ffn_latent_up.weight"},
};

const ModelFamily kNemotronHFamilies[] = {{
    .name = "nemotron_h",
    .example = "nemotron_h:L=4,C=4096,H=32,KV=8,D=128,F=21504,HS=128,VS=64,GS=8,KS=128,V=131072,T=8192,halves=1|2|1|2,recurrent=1|0|0|0",
    .huggingface = {kNemotronHHuggingface, kDecoderHuggingfaceNames},
    .gguf = {kNemotronHGguf, kStateSpaceGgufNames, kDecoderGgufNames},
    .decoder = nemotron_h_sizes,
    .classes = kNemotronHClasses,
    .architectures = kNemotronHArchitectures,
}};

}  // namespace

std::span<const ModelFamily> nemotron_h_families() { return kNemotronHFamilies; }

}  // namespace tessera
