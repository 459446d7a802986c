// gpt-oss: a mixture of experts with biases everywhere, attention sinks, windows on every other layer, and clamped
// gates.
//   tokens, positions i32 [B, T] -> logits f32 [B, T, V], aux_loss f32 []
#include "graph/base/text.h"
#include "graph/models/decoder.h"

namespace tessera {
namespace {

DecoderSizes gpt_oss_sizes(ConfigReader& reader) {
  DecoderSizes m = read_decoder_sizes(reader);
  read_windows(reader, m, 2);
  read_rope_scaling(reader, m);
  m.qkv_bias = m.o_bias = reader.flag("attention_bias", true);
  m.sinks = true;
  read_experts(reader, m, true, 0, 0.001);
  m.experts.bias = true;
  m.experts.limit = reader.real("gate_limit", 7);
  reader.check(m.experts.limit > 0, format("gate_limit is {}, wanted more than 0", m.experts.limit));
  return m;
}

constexpr NameRule kGptOssHuggingface[] = {
    {"block.#.sinks", "model.layers.#.self_attn.sinks"},
    {"block.#.router", "model.layers.#.mlp.router.weight"},
    {"block.#.router.bias", "model.layers.#.mlp.router.bias"},
    {"block.#.experts.gate", "model.layers.#.mlp.experts.gate_up_proj", ValueChange::kTransposedEven},
    {"block.#.experts.up", "model.layers.#.mlp.experts.gate_up_proj", ValueChange::kTransposedOdd},
    {"block.#.experts.down", "model.layers.#.mlp.experts.down_proj", ValueChange::kTransposed},
    {"block.#.experts.gate.bias", "model.layers.#.mlp.experts.gate_up_proj_bias", ValueChange::kEven},
    {"block.#.experts.up.bias", "model.layers.#.mlp.experts.gate_up_proj_bias", ValueChange::kOdd},
    {"block.#.experts.down.bias", "model.layers.#.mlp.experts.down_proj_bias"},
};
constexpr NameRule kGptOssGguf[] = {
    {"block.#.ffn_norm", "blk.#.post_attention_norm.weight"},
    {"block.#.sinks", "blk.#.attn_sinks.weight"},
    {"block.#.router.bias", "blk.#.ffn_gate_inp.bias"},
    {"block.#.experts.gate.bias", "blk.#.ffn_gate_exps.bias"},
    {"block.#.experts.up.bias", "blk.#.ffn_up_exps.bias"},
    {"block.#.experts.down.bias", "blk.#.ffn_down_exps.bias"},
};

constexpr HuggingfaceClass kGptOssClasses[] = {
    {"gpt_oss", "GptOssForCausalLM", [](HuggingfaceKeys& k) {
       k.decoder({.C = 2880, .F = 2880, .L = 36, .H = 64, .KV = 8, .V = 201088, .T = 131072, .norm_eps = 1e-5, .rope_theta = 150000,
                  .D = 64});
       k.rotation({.scaling = R"({"rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0, "truncate": false,
                                  "original_max_position_embeddings": 4096})"});
       k.windows({.otherwise = 128, .must_have = true, .every = 2});
       k.flag("attention_bias", "attention_bias", true);
       k.router("num_local_experts", 128, 4);
       k.positive("swiglu_limit", "gate_limit", 7);
       k.wants("swiglu_alpha", "1.702", "gates times sigmoid(1.702 gate)");
     }}};

void gpt_oss_gguf(GgufKeys& k) {
  k.decoder();
  k.rotation({.truncates = false});
  k.windows({.every = 2});
  k.plain_scores();
}
constexpr GgufArchitecture kGptOssArchitectures[] = {{.name = "gpt-oss", .keys = gpt_oss_gguf, .has_experts = true, .biases = Biases::kAll, .softmax_of_chosen = true}};

const ModelFamily kGptOssFamilies[] = {{
    .name = "gpt-oss",
    .example = "gpt-oss:L=24,C=2880,H=64,KV=8,D=64,F=2880,E=32,K=4,V=201088,T=131072,window=128,rope_half",
    .huggingface = {kGptOssHuggingface, kDecoderHuggingfaceNames},
    .gguf = {kGptOssGguf, kDecoderGgufNames},
    .decoder = gpt_oss_sizes,
    .classes = kGptOssClasses,
    .architectures = kGptOssArchitectures,
}};

}  // namespace

std::span<const ModelFamily> gpt_oss_families() { return kGptOssFamilies; }

}  // namespace tessera
