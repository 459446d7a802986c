// ModernBERT: rotations in place of positions, windows in all layers but each third, norms before each half, gelu gates,
// no biases. Its files hold q, k and v as one tensor, and gate and up as another.
//   tokens, positions i32 [B, T] -> logits f32 [B, T, V or N], hidden f32 [B, T, C]
#include "graph/models/encoder.h"

namespace tessera {
namespace {

EncoderSizes modernbert_sizes(ConfigReader& reader) {
  EncoderSizes m = read_encoder_sizes(reader, 1e-5);
  m.learned_positions = m.bias = m.norm_bias = false;
  m.pre_norm = true;
  m.gate = EncoderSizes::Gate::kGelu;
  m.classifier = EncoderSizes::Classifier::kNormed;
  m.class_mean = reader.flag("class_mean", false);
  m.head_bias = reader.flag("head_bias", false);
  m.output_bias = reader.flag("output_bias", true);
  m.rope_theta = reader.real("rope_theta", 160000);
  m.window_theta = reader.real("window_theta", 10000);
  m.windows = reader.list("windows", m.L, 0);
  const int64_t window = reader.size("window", 65);
  constexpr int64_t kEvery = 3;
  if (m.windows.empty())
    for (int64_t i = 0; i < m.L; ++i) m.windows.push_back(i % kEvery == 0 ? 0 : window);
  reader.check(m.C % (2 * m.H) == 0, "heads of an odd size cannot be rotated");
  reader.check(!m.pooler, "pooler: this family has none");
  reader.check(!m.class_mean || m.N > 0, "class_mean is of a head for classes: wanted N");
  return m;
}

constexpr NameRule kModernbertHuggingface[] = {
    {"token_embedding", "embeddings.tok_embeddings.weight"},
    {"embedding_norm.weight", "embeddings.norm.weight"},
    {"output_norm.weight", "final_norm.weight"},
    {"block.#.norm1.weight", "layers.#.attn_norm.weight"},
    {"block.#.q.weight", "layers.#.attn.Wqkv.weight"},
    {"block.#.k.weight", "layers.#.attn.Wqkv.weight"},
    {"block.#.v.weight", "layers.#.attn.Wqkv.weight"},
    {"block.#.o.weight", "layers.#.attn.Wo.weight"},
    {"block.#.norm2.weight", "layers.#.mlp_norm.weight"},
    {"block.#.gate.weight", "layers.#.mlp.Wi.weight"},
    {"block.#.up.weight", "layers.#.mlp.Wi.weight"},
    {"block.#.down.weight", "layers.#.mlp.Wo.weight"},
    {"head.weight", "head.dense.weight"},
    {"head.bias", "head.dense.bias"},
    {"head_norm.weight", "head.norm.weight"},
    {"output.weight", "decoder.weight"},
    {"output.bias", "decoder.bias"},
    {"classifier.weight", "classifier.weight"},
    {"classifier.bias", "classifier.bias"},
};
constexpr NameRule kModernbertGguf[] = {
    {"output_norm.weight", "output_norm.weight"},
    {"block.#.norm1.weight", "blk.#.attn_norm.weight"},
    {"block.#.q.weight", "blk.#.attn_qkv.weight"},
    {"block.#.k.weight", "blk.#.attn_qkv.weight"},
    {"block.#.v.weight", "blk.#.attn_qkv.weight"},
    {"block.#.norm2.weight", "blk.#.ffn_norm.weight"},
    {"block.#.gate.weight", "blk.#.ffn_up.weight"},
    {"block.#.up.weight", "blk.#.ffn_up.weight"},
    {"block.#.down.weight", "blk.#.ffn_down.weight"},
    {"head.weight", "cls.weight"},
    {"head.bias", "cls.bias"},
    {"head_norm.weight", "cls.norm.weight"},
};

const ModelFamily kModernbertFamilies[] = {
    {.name = "modernbert",
     .example = "modernbert:L=22,C=768,H=12,F=1152,V=50368,T=8192",
     .huggingface = {kModernbertHuggingface},
     .gguf = {kModernbertGguf, kEncoderGgufNames},
     .encoder = modernbert_sizes},
};

}  // namespace

std::span<const ModelFamily> modernbert_families() { return kModernbertFamilies; }

}  // namespace tessera
