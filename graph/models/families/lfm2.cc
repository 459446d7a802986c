// LFM2: Llama with an rms_norm on every head of q and k, in most layers a causal convolution of few tokens in place of attention;
// with experts after the first layers, scored by a sigmoid and chosen by scores plus a bias.
//   tokens, positions i32 [B, T] -> logits f32 [B, T, V], with experts also aux_loss f32 [] where "aux" or "z" is above 0
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

DecoderSizes lfm2moe_sizes(ConfigReader& reader) {
  DecoderSizes m = lfm2_sizes(reader);
  read_experts(reader, m, true, 0, 0);
  read_dense_layers(reader, m);
  ExpertSizes& e = m.experts;
  e.scale = reader.real("expert_scale", 1);
  e.sigmoid = true;
  e.selection_bias = reader.flag("selection_bias", true);
  e.sum_eps = 1e-6;
  reader.check(e.aux == 0, "aux is a loss of probabilities, which a sigmoid does not give; wanted 0");
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
constexpr HuggingfaceClass kLfm2moeClasses[] = {
    {"lfm2_moe", "Lfm2MoeForCausalLM",
     [](HuggingfaceKeys& k) {
       k.decoder({.C = 2048, .F = 7168, .L = 32, .H = 32, .KV = 8, .V = 65536, .T = 128000, .norm_eps = 1e-5, .rope_theta = 1e6,
                  .tied = true, .norm_key = "norm_eps"},
                 {.key = ""});
       k.renamed_flag("tie_embedding", "tied");
       k.rotation();
       k.recurrent({.type = "conv", .wants_types = true});
       k.size("conv_L_cache", "taps", kTaps);
       k.flag("conv_bias", "conv_bias", false);
       k.expert_width("moe_intermediate_size", 1792);
       k.router("num_experts", 32, 4, 0);  // transformers' class adds no balance loss
       k.dense_first("num_dense_layers", 2);
       k.flag("use_expert_bias", "selection_bias", true);
       k.flag("norm_topk_prob", "normalize", true);
       k.positive("routed_scaling_factor", "expert_scale", 1);
     },
     0}};

void common_gguf(GgufKeys& k) {
  k.rotation();
  k.size("shortconv.l_cache", "taps", {});
  k.plain_scores();
}
void lfm2_gguf(GgufKeys& k) {
  k.decoder();
  common_gguf(k);
}
void lfm2moe_gguf(GgufKeys& k) {
  k.decoder({.dense_first = true});
  common_gguf(k);
  k.set_flag("selection_bias", true);
}
constexpr GgufArchitecture kLfm2Architectures[] = {{.name = "lfm2", .keys = lfm2_gguf, .recurrent_by_heads = true}};
constexpr GgufArchitecture kLfm2moeArchitectures[] = {
    {.name = "lfm2moe", .keys = lfm2moe_gguf, .has_experts = true, .sigmoid_router = true, .recurrent_by_heads = true}};

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
constexpr NameRule kExpertsHuggingface[] = {
    {"block.#.router", "model.layers.#.feed_forward.gate.weight"},
    {"block.#.selection.bias", "model.layers.#.feed_forward.expert_bias"},
    {"block.#.experts.gate", "model.layers.#.feed_forward.experts.@.w1.weight"},
    {"block.#.experts.up", "model.layers.#.feed_forward.experts.@.w3.weight"},
    {"block.#.experts.down", "model.layers.#.feed_forward.experts.@.w2.weight"},
};
constexpr NameRule kLfm2Gguf[] = {
    {"block.#.selection.bias", "blk.#.exp_probs_b.bias"},
    {"final_norm", "token_embd_norm.weight"},
    {"block.#.conv_b", "blk.#.shortconv.in_proj.weight"},
    {"block.#.conv_c", "blk.#.shortconv.in_proj.weight"},
    {"block.#.conv_x", "blk.#.shortconv.in_proj.weight"},
    {"block.#.conv", "blk.#.shortconv.conv.weight"},
    {"block.#.conv_out", "blk.#.shortconv.out_proj.weight"},
};

const ModelFamily kLfm2Families[] = {
    {.name = "lfm2",
     .example = "lfm2:L=16,C=2048,H=32,KV=8,F=8192,V=65536,T=128000,attention_every=3,tied,rope_half",
     .huggingface = {kLfm2Huggingface, kDecoderHuggingfaceNames},
     .gguf = {kLfm2Gguf, kDecoderGgufNames},
     .decoder = lfm2_sizes,
     .classes = kLfm2Classes,
     .architectures = kLfm2Architectures},
    {.name = "lfm2moe",
     .example = "lfm2moe:L=24,C=2048,H=32,KV=8,F=1792,E=32,K=4,FD=7168,V=65536,T=128000,attention_every=4,expert_layers=0|0|1|1|1|1|1|1|1|1|1|1|1|1|1|1|1|1|1|1|1|1|1|1,tied,rope_half",
     .huggingface = {kExpertsHuggingface, kLfm2Huggingface, kDecoderHuggingfaceNames},
     .gguf = {kLfm2Gguf, kDecoderGgufNames},
     .decoder = lfm2moe_sizes,
     .classes = kLfm2moeClasses,
     .architectures = kLfm2moeArchitectures},
};

}  // namespace

std::span<const ModelFamily> lfm2_families() { return kLfm2Families; }

}  // namespace tessera
