// BERT: learned positions and types of tokens, attention in both directions, layer_norm after each half,
// gelu; and for masked tokens a dense layer, gelu, layer_norm, and the embedding with a bias of its own.
//   tokens, positions, token_types i32 [B, T] -> logits f32 [B, T, V or N], hidden f32 [B, T, C]
// The data decide which tokens are masked: labels hold the original token there and -1 everywhere else.
// "encoder" is the same without types, for masked tokens alone.
#include "graph/models/encoder.h"
#include "graph/models/families.h"

namespace tessera {

EncoderSizes bert_sizes(ConfigReader& reader) {
  EncoderSizes m = read_encoder_sizes(reader, 1e-12);
  m.Y = reader.size("Y", 2);
  return m;
}

Result<Graph> build_bert(const ModelConfig& config) { return build_encoder_model(config, bert_sizes); }

EncoderSizes plain_encoder_sizes(ConfigReader& reader) {
  EncoderSizes m = read_encoder_sizes(reader, 1e-12);
  m.hidden = false;
  return m;
}

Result<Graph> build_encoder(const ModelConfig& config) {
  return build_encoder_model(config, plain_encoder_sizes);
}

namespace {
constexpr NameRule kHuggingface[] = {
    {"token_embedding", "embeddings.word_embeddings.weight"},
    {"position_embedding", "embeddings.position_embeddings.weight"},
    {"token_type_embedding", "embeddings.token_type_embeddings.weight"},
    {"embedding_norm.weight", "embeddings.LayerNorm.weight"},
    {"embedding_norm.bias", "embeddings.LayerNorm.bias"},
    {"block.#.q.weight", "encoder.layer.#.attention.self.query.weight"},
    {"block.#.q.bias", "encoder.layer.#.attention.self.query.bias"},
    {"block.#.k.weight", "encoder.layer.#.attention.self.key.weight"},
    {"block.#.k.bias", "encoder.layer.#.attention.self.key.bias"},
    {"block.#.v.weight", "encoder.layer.#.attention.self.value.weight"},
    {"block.#.v.bias", "encoder.layer.#.attention.self.value.bias"},
    {"block.#.o.weight", "encoder.layer.#.attention.output.dense.weight"},
    {"block.#.o.bias", "encoder.layer.#.attention.output.dense.bias"},
    {"block.#.norm1.weight", "encoder.layer.#.attention.output.LayerNorm.weight"},
    {"block.#.norm1.bias", "encoder.layer.#.attention.output.LayerNorm.bias"},
    {"block.#.fc.weight", "encoder.layer.#.intermediate.dense.weight"},
    {"block.#.fc.bias", "encoder.layer.#.intermediate.dense.bias"},
    {"block.#.proj.weight", "encoder.layer.#.output.dense.weight"},
    {"block.#.proj.bias", "encoder.layer.#.output.dense.bias"},
    {"block.#.norm2.weight", "encoder.layer.#.output.LayerNorm.weight"},
    {"block.#.norm2.bias", "encoder.layer.#.output.LayerNorm.bias"},
    {"pooler.weight", "pooler.dense.weight"},
    {"pooler.bias", "pooler.dense.bias"},
    {"classifier.weight", "classifier.weight"},
    {"classifier.bias", "classifier.bias"},
    {"head.weight", "cls.predictions.transform.dense.weight"},
    {"head.bias", "cls.predictions.transform.dense.bias"},
    {"head_norm.weight", "cls.predictions.transform.LayerNorm.weight"},
    {"head_norm.bias", "cls.predictions.transform.LayerNorm.bias"},
    {"output.weight", "cls.predictions.decoder.weight"},
    {"output.bias", "cls.predictions.bias"},
};
constexpr NameRule kGguf[] = {{"pooler.weight", "cls.weight"}, {"pooler.bias", "cls.bias"}};
}  // namespace
constexpr std::span<const NameRule> kBertHuggingfaceNames = kHuggingface, kBertGgufNames = kGguf;

}  // namespace tessera
