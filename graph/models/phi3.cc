// Phi-3: Llama whose files hold q, k and v as one tensor, and gate and up as another.
//   tokens, positions i32 [B, T] -> logits f32 [B, T, V]
#include "graph/models/decoder.h"
#include "graph/models/families.h"

namespace tessera {

DecoderSizes phi3_sizes(ConfigReader& reader) {
  DecoderSizes m = read_decoder_sizes(reader);
  read_windows(reader, m);
  read_rope_scaling(reader, m);
  return m;
}

Result<Graph> build_phi3(const ModelConfig& config) { return build_decoder(config, phi3_sizes); }

namespace {
constexpr NameRule kHuggingface[] = {
    {"block.#.q", "model.layers.#.self_attn.qkv_proj.weight"},
    {"block.#.k", "model.layers.#.self_attn.qkv_proj.weight"},
    {"block.#.v", "model.layers.#.self_attn.qkv_proj.weight"},
    {"block.#.gate", "model.layers.#.mlp.gate_up_proj.weight"},
    {"block.#.up", "model.layers.#.mlp.gate_up_proj.weight"},
};
constexpr NameRule kGguf[] = {
    {"block.#.q", "blk.#.attn_qkv.weight"}, {"block.#.k", "blk.#.attn_qkv.weight"},
    {"block.#.v", "blk.#.attn_qkv.weight"}, {"block.#.gate", "blk.#.ffn_up.weight"},
    {"block.#.up", "blk.#.ffn_up.weight"},
};
}  // namespace
constexpr std::span<const NameRule> kPhi3HuggingfaceNames = kHuggingface, kPhi3GgufNames = kGguf;

}  // namespace tessera
