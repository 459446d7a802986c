// DistilBERT: BERT without types of tokens, and with relu between the two layers of its classes.
//   tokens, positions i32 [B, T] -> logits f32 [B, T, V or N], hidden f32 [B, T, C]
#include "graph/models/encoder.h"

namespace tessera {
namespace {

EncoderSizes distilbert_sizes(ConfigReader& reader) {
  EncoderSizes m = read_encoder_sizes(reader, 1e-12);
  m.classifier = EncoderSizes::Classifier::kRelu;
  return m;
}

constexpr NameRule kDistilbertHuggingface[] = {
    {"token_embedding", "embeddings.word_embeddings.weight"},
    {"position_embedding", "embeddings.position_embeddings.weight"},
    {"embedding_norm.weight", "embeddings.LayerNorm.weight"},
    {"embedding_norm.bias", "embeddings.LayerNorm.bias"},
    {"block.#.q.weight", "transformer.layer.#.attention.q_lin.weight"},
    {"block.#.q.bias", "transformer.layer.#.attention.q_lin.bias"},
    {"block.#.k.weight", "transformer.layer.#.attention.k_lin.weight"},
    {"block.#.k.bias", "transformer.layer.#.attention.k_lin.bias"},
    {"block.#.v.weight", "transformer.layer.#.attention.v_lin.weight"},
    {"block.#.v.bias", "transformer.layer.#.attention.v_lin.bias"},
    {"block.#.o.weight", "transformer.layer.#.attention.out_lin.weight"},
    {"block.#.o.bias", "transformer.layer.#.attention.out_lin.bias"},
    {"block.#.norm1.weight", "transformer.layer.#.sa_layer_norm.weight"},
    {"block.#.norm1.bias", "transformer.layer.#.sa_layer_norm.bias"},
    {"block.#.fc.weight", "transformer.layer.#.ffn.lin1.weight"},
    {"block.#.fc.bias", "transformer.layer.#.ffn.lin1.bias"},
    {"block.#.proj.weight", "transformer.layer.#.ffn.lin2.weight"},
    {"block.#.proj.bias", "transformer.layer.#.ffn.lin2.bias"},
    {"block.#.norm2.weight", "transformer.layer.#.output_layer_norm.weight"},
    {"block.#.norm2.bias", "transformer.layer.#.output_layer_norm.bias"},
    {"pre_classifier.weight", "pre_classifier.weight"},
    {"pre_classifier.bias", "pre_classifier.bias"},
    {"classifier.weight", "classifier.weight"},
    {"classifier.bias", "classifier.bias"},
    {"head.weight", "vocab_transform.weight"},
    {"head.bias", "vocab_transform.bias"},
    {"head_norm.weight", "vocab_layer_norm.weight"},
    {"head_norm.bias", "vocab_layer_norm.bias"},
    {"output.weight", "vocab_projector.weight"},
    {"output.bias", "vocab_projector.bias"},
};

const ModelFamily kDistilbertFamilies[] = {
    {.name = "distilbert",
     .example = "distilbert:L=6,C=768,H=12,V=30522,T=512",
     .huggingface = {kDistilbertHuggingface},
     .gguf = {kDenseClassifierGgufNames, kEncoderGgufNames},
     .encoder = distilbert_sizes},
};

}  // namespace

std::span<const ModelFamily> distilbert_families() { return kDistilbertFamilies; }

}  // namespace tessera
