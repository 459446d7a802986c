// Mixture of experts of Mixtral: Llama whose feed-forward half is E
// experts, of which a router chooses K for every token (experts.h).
//   tokens, positions i32 [B, T] -> logits f32 [B, T, V], aux_loss f32 []
#include "graph/models/decoder.h"
#include "graph/models/families.h"

namespace tessera {

DecoderSizes moe_sizes(ConfigReader& reader) {
  DecoderSizes m = read_decoder_sizes(reader);
  read_windows(reader, m);
  read_rope_scaling(reader, m);
  read_experts(reader, m, true, 1.25, 0.01);
  return m;
}

Result<Graph> build_moe(const ModelConfig& config) { return build_decoder(config, moe_sizes); }

namespace {
constexpr NameRule kNames[] = {
    {"block.#.router", "model.layers.#.block_sparse_moe.gate.weight"},
    {"block.#.experts.gate", "model.layers.#.block_sparse_moe.experts.@.w1.weight"},
    {"block.#.experts.up", "model.layers.#.block_sparse_moe.experts.@.w3.weight"},
    {"block.#.experts.down", "model.layers.#.block_sparse_moe.experts.@.w2.weight"},
};
}  // namespace
constexpr std::span<const NameRule> kMixtralNames = kNames;

}  // namespace tessera
