// BERT: learned positions and types of tokens, attention in both directions, layer_norm after each half,
// gelu; and for masked tokens a dense layer, gelu, layer_norm, and the embedding with a bias of its own.
//   tokens, positions, token_types i32 [B, T] -> logits f32 [B, T, V or N], hidden f32 [B, T, C]
// The data decide which tokens are masked: labels hold the original token there and -1 everywhere else.
// "encoder" is the same without types, for masked tokens alone.
#include "graph/models/encoder.h"

namespace tessera {
namespace {

EncoderSizes bert_sizes(ConfigReader& reader) {
  EncoderSizes m = read_encoder_sizes(reader, 1e-12);
  m.Y = reader.size("Y", 2);
  return m;
}

EncoderSizes plain_encoder_sizes(ConfigReader& reader) {
  EncoderSizes m = read_encoder_sizes(reader, 1e-12);
  m.hidden = false;
  return m;
}

constexpr NameRule kBertGguf[] = {{"pooler.weight", "cls.weight"}, {"pooler.bias", "cls.bias"}};

const ModelFamily kBertFamilies[] = {
    {.name = "bert",
     .example = "bert:L=12,C=768,H=12,V=30522,T=512",
     .huggingface = {kBertHuggingfaceNames},
     .gguf = {kBertGguf, kEncoderGgufNames},
     .encoder = bert_sizes},
    {.name = "encoder",
     .example = "encoder:L=12,C=768,H=12,V=30522,T=512",
     .gguf = {kEncoderGgufNames},
     .encoder = plain_encoder_sizes},
};

}  // namespace

std::span<const ModelFamily> bert_families() { return kBertFamilies; }

}  // namespace tessera
