// Nomic's BERT: rotations in place of positions, silu gates, no biases in its blocks' matrices. Its files hold q, k and v
// as one tensor.
//   tokens, positions, token_types i32 [B, T] -> logits f32 [B, T, V or N], hidden f32 [B, T, C]
#include "graph/models/encoder.h"

namespace tessera {
namespace {

EncoderSizes nomic_bert_sizes(ConfigReader& reader) {
  EncoderSizes m = read_encoder_sizes(reader, 1e-12);
  m.Y = reader.size("Y", 2);
  m.rope_theta = reader.real("rope_theta", 1000);
  m.learned_positions = m.bias = false;
  m.gate = EncoderSizes::Gate::kSilu;
  m.head_silu = true;
  reader.check(m.C % (2 * m.H) == 0, "heads of an odd size cannot be rotated");
  return m;
}

constexpr NameRule kNomicBertHuggingface[] = {
    {"embedding_norm.weight", "emb_ln.weight"},
    {"embedding_norm.bias", "emb_ln.bias"},
    {"block.#.q.weight", "encoder.layers.#.attn.Wqkv.weight"},
    {"block.#.k.weight", "encoder.layers.#.attn.Wqkv.weight"},
    {"block.#.v.weight", "encoder.layers.#.attn.Wqkv.weight"},
    {"block.#.o.weight", "encoder.layers.#.attn.out_proj.weight"},
    {"block.#.norm1.weight", "encoder.layers.#.norm1.weight"},
    {"block.#.norm1.bias", "encoder.layers.#.norm1.bias"},
    {"block.#.gate.weight", "encoder.layers.#.mlp.fc12.weight"},
    {"block.#.up.weight", "encoder.layers.#.mlp.fc11.weight"},
    {"block.#.down.weight", "encoder.layers.#.mlp.fc2.weight"},
    {"block.#.norm2.weight", "encoder.layers.#.norm2.weight"},
    {"block.#.norm2.bias", "encoder.layers.#.norm2.bias"},
    {"head_norm.weight", "cls.predictions.transform.layer_norm.weight"},
    {"head_norm.bias", "cls.predictions.transform.layer_norm.bias"},
};
constexpr NameRule kNomicBertGguf[] = {
    {"block.#.gate.weight", "blk.#.ffn_gate.weight"},
    {"block.#.up.weight", "blk.#.ffn_up.weight"},
    {"block.#.down.weight", "blk.#.ffn_down.weight"},
    {"pooler.weight", "cls.weight"},
    {"pooler.bias", "cls.bias"},
};

const ModelFamily kNomicBertFamilies[] = {
    {.name = "nomic-bert",
     .example = "nomic-bert:L=12,C=768,H=12,F=3072,V=30528,T=2048",
     .huggingface = {kNomicBertHuggingface, kBertHuggingfaceNames},
     .gguf = {kNomicBertGguf, kEncoderGgufNames},
     .encoder = nomic_bert_sizes},
};

}  // namespace

std::span<const ModelFamily> nomic_bert_families() { return kNomicBertFamilies; }

}  // namespace tessera
