// Granite 4: Granite with state spaces (Mamba-2) in place of attention in most layers, without rotation where the file says so. Its
// variant with experts has a shared expert in every layer.
//   tokens, positions i32 [B, T] -> logits f32 [B, T, V], of granitehybridmoe also aux_loss f32 []
#include "graph/models/decoder.h"

namespace tessera {
namespace {

constexpr int64_t kTaps = 4;

DecoderSizes granitehybrid_sizes(ConfigReader& reader) {
  DecoderSizes m = read_decoder_sizes(reader);
  read_rope_scaling(reader, m);
  read_biases(reader, m);
  read_recurrent(reader, m, Recurrent::kStateSpace, 10, kTaps);
  read_states(reader, m);
  m.rope_layers = reader.list("rope_layers", m.L, 0);
  m.attention_scale = reader.real("attention_scale", 0);
  m.embedding_scale = reader.real("embedding_scale", 1);
  m.residual_scale = reader.real("residual_scale", 1);
  m.logit_scale = reader.real("logit_scale", 1);
  return m;
}

DecoderSizes granitehybridmoe_sizes(ConfigReader& reader) {
  DecoderSizes m = granitehybrid_sizes(reader);
  read_experts(reader, m, true, 0, 0.001);
  m.experts.FS = reader.size("FS");
  return m;
}

void common_keys(HuggingfaceKeys& k) {
  k.decoder({.C = 4096, .F = 11008, .L = 32, .H = 32, .KV = 0, .V = 32000, .T = 2048, .norm_eps = 1e-6});
  k.rotation();
  k.rotates_if("position_embedding_type", "rope");
  k.attention_bias();
  k.score_scale("attention_multiplier", 1);
  k.positive("embedding_multiplier", "embedding_scale", 1);
  k.positive("residual_multiplier", "residual_scale", 1);
  k.positive("logits_scaling", "logit_scale", 1, KeyForm::kInverse);
  k.recurrent({.also = "mamba"});
  k.size("mamba_n_heads", "HS", 128);
  k.size("mamba_n_groups", "GS", 1);
  k.size("mamba_d_state", "KS", 256);
  k.head_width("mamba_d_head", "mamba_expand", 2);
  k.size("mamba_d_conv", "taps", kTaps);
  k.flag("mamba_conv_bias", "conv_bias", true);
  k.wants("mamba_proj_bias", "false", "state spaces without biases at their products");
  k.step_limits("time_step_limit");
}

constexpr HuggingfaceClass kGranitehybridClasses[] = {
    {"granitemoehybrid", "GraniteMoeHybridForCausalLM",
     [](HuggingfaceKeys& k) {
       common_keys(k);
       k.size("shared_intermediate_size", "F", 1024);
       k.states_size("num_local_experts", 0);
     },
     {}, {}, false}};
constexpr HuggingfaceClass kGranitehybridmoeClasses[] = {
    {"granitemoehybrid", "GraniteMoeHybridForCausalLM",
     [](HuggingfaceKeys& k) {
       common_keys(k);
       k.router("num_local_experts", 8, 2);
       k.size("shared_intermediate_size", "FS", 1024);
     },
     {}, {}, true}};

void granitehybrid_gguf(GgufKeys& k) {
  k.decoder();
  k.rotation();
  k.rotates_if("rope.scaling.finetuned");
  k.score_scale("attention.scale");
  k.factor("embedding_scale", "embedding_scale");
  k.factor("residual_scale", "residual_scale");
  k.factor("logit_scale", "logit_scale", KeyForm::kInverse);
  k.states();
  k.set_flag("conv_bias", true);
}
void granitehybridmoe_gguf(GgufKeys& k) {
  granitehybrid_gguf(k);
  k.size("expert_shared_feed_forward_length", "FS", {});
}
constexpr GgufArchitecture kGranitehybridArchitectures[] = {
    {.name = "granitehybrid", .keys = granitehybrid_gguf, .rope_half = false, .factors = FactorTensors::kOne, .recurrent_by_heads = true}};
constexpr GgufArchitecture kGranitehybridmoeArchitectures[] = {{.name = "granitehybrid",
                                                                .keys = granitehybridmoe_gguf,
                                                                .rope_half = false,
                                                                .has_experts = true,
                                                                .factors = FactorTensors::kOne,
                                                                .recurrent_by_heads = true}};

constexpr NameRule kStateSpaceHuggingface[] = {
    {"block.#.scan_z", "model.layers.#.mamba.in_proj.weight"},
    {"block.#.scan_v", "model.layers.#.mamba.in_proj.weight"},
    {"block.#.scan_k", "model.layers.#.mamba.in_proj.weight"},
    {"block.#.scan_q", "model.layers.#.mamba.in_proj.weight"},
    {"block.#.scan_step", "model.layers.#.mamba.in_proj.weight"},
    {"block.#.conv_v", "model.layers.#.mamba.conv1d.weight", ValueChange::kApart},
    {"block.#.conv_k", "model.layers.#.mamba.conv1d.weight", ValueChange::kApart},
    {"block.#.conv_q", "model.layers.#.mamba.conv1d.weight", ValueChange::kApart},
    {"block.#.conv_v.bias", "model.layers.#.mamba.conv1d.bias"},
    {"block.#.conv_k.bias", "model.layers.#.mamba.conv1d.bias"},
    {"block.#.conv_q.bias", "model.layers.#.mamba.conv1d.bias"},
    {"block.#.log_rate", "model.layers.#.mamba.A_log"},
    {"block.#.step_bias", "model.layers.#.mamba.dt_bias"},
    {"block.#.skip", "model.layers.#.mamba.D"},
    {"block.#.scan_norm", "model.layers.#.mamba.norm.weight"},
    {"block.#.scan_out", "model.layers.#.mamba.out_proj.weight"},
    {"block.#.gate", "model.layers.#.shared_mlp.input_linear.weight"},
    {"block.#.up", "model.layers.#.shared_mlp.input_linear.weight"},
    {"block.#.down", "model.layers.#.shared_mlp.output_linear.weight"},
};
constexpr NameRule kExpertsHuggingface[] = {
    {"block.#.router", "model.layers.#.block_sparse_moe.router.layer.weight"},
    {"block.#.experts.gate", "model.layers.#.block_sparse_moe.input_linear.weight"},
    {"block.#.experts.up", "model.layers.#.block_sparse_moe.input_linear.weight"},
    {"block.#.experts.down", "model.layers.#.block_sparse_moe.output_linear.weight"},
    {"block.#.shared.gate", "model.layers.#.shared_mlp.input_linear.weight"},
    {"block.#.shared.up", "model.layers.#.shared_mlp.input_linear.weight"},
    {"block.#.shared.down", "model.layers.#.shared_mlp.output_linear.weight"},
};

const ModelFamily kGranitehybridFamilies[] = {
    {.name = "granitehybrid",
     .example = "granitehybrid:L=40,C=2048,H=32,KV=8,F=8192,HS=64,VS=64,GS=1,KS=128,V=100352,T=131072,tied,rope_half",
     .huggingface = {kStateSpaceHuggingface, kDecoderHuggingfaceNames},
     .gguf = {kStateSpaceGgufNames, kDecoderGgufNames},
     .decoder = granitehybrid_sizes,
     .classes = kGranitehybridClasses,
     .architectures = kGranitehybridArchitectures},
    {.name = "granitehybridmoe",
     .example = "granitehybridmoe:L=40,C=1536,H=12,KV=4,F=512,E=64,K=6,FS=1024,HS=48,VS=64,GS=1,KS=128,V=100352,T=131072,tied,rope_half",
     .huggingface = {kExpertsHuggingface, kStateSpaceHuggingface, kDecoderHuggingfaceNames},
     .gguf = {kStateSpaceGgufNames, kDecoderGgufNames},
     .decoder = granitehybridmoe_sizes,
     .classes = kGranitehybridmoeClasses,
     .architectures = kGranitehybridmoeArchitectures},
};

}  // namespace

std::span<const ModelFamily> granitehybrid_families() { return kGranitehybridFamilies; }

}  // namespace tessera
