// RoBERTa: BERT whose table of positions begins with rows for padding, and whose classes have a dense layer of their own.
//   tokens, positions, token_types i32 [B, T] -> logits f32 [B, T, V or N], hidden f32 [B, T, C]
#include "graph/models/encoder.h"

namespace tessera {
namespace {

EncoderSizes roberta_sizes(ConfigReader& reader) {
  EncoderSizes m = read_encoder_sizes(reader, 1e-5);
  m.Y = reader.size("Y", 1);
  m.position_offset = reader.size("position_offset", 2);
  m.classifier = EncoderSizes::Classifier::kTanh;
  return m;
}

constexpr NameRule kRobertaHuggingface[] = {
    {"pre_classifier.weight", "classifier.dense.weight"},
    {"pre_classifier.bias", "classifier.dense.bias"},
    {"classifier.weight", "classifier.out_proj.weight"},
    {"classifier.bias", "classifier.out_proj.bias"},
    {"head.weight", "lm_head.dense.weight"},
    {"head.bias", "lm_head.dense.bias"},
    {"head_norm.weight", "lm_head.layer_norm.weight"},
    {"head_norm.bias", "lm_head.layer_norm.bias"},
    {"output.weight", "lm_head.decoder.weight"},
    {"output.bias", "lm_head.bias"},
};

const ModelFamily kRobertaFamilies[] = {
    {.name = "roberta",
     .example = "roberta:L=12,C=768,H=12,V=50265,T=512",
     .huggingface = {kRobertaHuggingface, kBertHuggingfaceNames},
     .gguf = {kDenseClassifierGgufNames, kEncoderGgufNames},
     .encoder = roberta_sizes},
};

}  // namespace

std::span<const ModelFamily> roberta_families() { return kRobertaFamilies; }

}  // namespace tessera
