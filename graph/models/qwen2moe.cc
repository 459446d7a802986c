// Qwen2-MoE: Qwen2 whose feed-forward halves are experts and a shared expert, weighted by a sigmoid.
//   tokens, positions i32 [B, T] -> logits f32 [B, T, V], aux_loss f32 []
#include "graph/models/decoder.h"
#include "graph/models/families.h"

namespace tessera {

DecoderSizes qwen2moe_sizes(ConfigReader& reader) {
  DecoderSizes m = qwen2_sizes(reader);
  read_experts(reader, m, false, 0, 0.001);
  read_dense_layers(reader, m);
  m.experts.FS = reader.size("FS");
  m.experts.shared_gate = true;
  return m;
}

Result<Graph> build_qwen2moe(const ModelConfig& config) { return build_decoder(config, qwen2moe_sizes); }

namespace {
constexpr NameRule kHuggingface[] = {
    {"block.#.shared.gate", "model.layers.#.mlp.shared_expert.gate_proj.weight"},
    {"block.#.shared.up", "model.layers.#.mlp.shared_expert.up_proj.weight"},
    {"block.#.shared.down", "model.layers.#.mlp.shared_expert.down_proj.weight"},
    {"block.#.shared.router", "model.layers.#.mlp.shared_expert_gate.weight"},
};
constexpr NameRule kGguf[] = {{"block.#.shared.router", "blk.#.ffn_gate_inp_shexp.weight"}};
}  // namespace
constexpr std::span<const NameRule> kQwen2moeHuggingfaceNames = kHuggingface, kQwen2moeGgufNames = kGguf;

}  // namespace tessera
