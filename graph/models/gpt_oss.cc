// gpt-oss: a mixture of experts with biases everywhere, attention sinks, windows on every other layer, and clamped
// gates.
//   tokens, positions i32 [B, T] -> logits f32 [B, T, V], aux_loss f32 []
#include "graph/base/text.h"
#include "graph/models/decoder.h"
#include "graph/models/families.h"

namespace tessera {

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

Result<Graph> build_gpt_oss(const ModelConfig& config) { return build_decoder(config, gpt_oss_sizes); }

namespace {
constexpr NameRule kHuggingface[] = {
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
constexpr NameRule kGguf[] = {
    {"block.#.ffn_norm", "blk.#.post_attention_norm.weight"},
    {"block.#.sinks", "blk.#.attn_sinks.weight"},
    {"block.#.router.bias", "blk.#.ffn_gate_inp.bias"},
    {"block.#.experts.gate.bias", "blk.#.ffn_gate_exps.bias"},
    {"block.#.experts.up.bias", "blk.#.ffn_up_exps.bias"},
    {"block.#.experts.down.bias", "blk.#.ffn_down_exps.bias"},
};
}  // namespace
constexpr std::span<const NameRule> kGptOssHuggingfaceNames = kHuggingface, kGptOssGgufNames = kGguf;

}  // namespace tessera
