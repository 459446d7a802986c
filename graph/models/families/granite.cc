// Granite: Llama with factors on embeddings, scores, the outputs of halves, and logits.
//   tokens, positions i32 [B, T] -> logits f32 [B, T, V]
#include "graph/models/decoder.h"

namespace tessera {
namespace {

DecoderSizes granite_sizes(ConfigReader& reader) {
  DecoderSizes m = read_decoder_sizes(reader);
  read_rope_scaling(reader, m);
  read_biases(reader, m);
  m.mlp_bias = reader.flag("mlp_bias", false);
  m.attention_scale = reader.real("attention_scale", 0);
  m.embedding_scale = reader.real("embedding_scale", 1);
  m.residual_scale = reader.real("residual_scale", 1);
  m.logit_scale = reader.real("logit_scale", 1);
  return m;
}

constexpr HuggingfaceClass kGraniteClasses[] = {
    {"granite", "GraniteForCausalLM", [](HuggingfaceKeys& k) {
       k.decoder({.C = 4096, .F = 11008, .L = 32, .H = 32, .KV = 0, .V = 32000, .T = 2048, .norm_eps = 1e-6});
       k.rotation();
       k.attention_bias();
       k.flag("mlp_bias", "mlp_bias", false);
       k.score_scale("attention_multiplier", 1);
       k.positive("embedding_multiplier", "embedding_scale", 1);
       k.positive("residual_multiplier", "residual_scale", 1);
       k.positive("logits_scaling", "logit_scale", 1, KeyForm::kInverse);
     }}};

void granite_gguf(GgufKeys& k) {
  k.decoder();
  k.rotation();
  k.score_scale("attention.scale");
  k.factor("embedding_scale", "embedding_scale");
  k.factor("residual_scale", "residual_scale");
  k.factor("logit_scale", "logit_scale", KeyForm::kInverse);
}
constexpr GgufArchitecture kGraniteArchitectures[] = {{.name = "granite", .keys = granite_gguf, .rope_half = false, .factors = FactorTensors::kOne, .biases = Biases::kAll, .optional_biases = true}};

const ModelFamily kGraniteFamilies[] = {{
    .name = "granite",
    .example = "granite:L=40,C=2048,H=32,KV=8,F=8192,V=49155,T=131072,tied,rope_half",
    .huggingface = {kDecoderHuggingfaceNames},
    .gguf = {kDecoderGgufNames},
    .decoder = granite_sizes,
    .classes = kGraniteClasses,
    .architectures = kGraniteArchitectures,
}};

}  // namespace

std::span<const ModelFamily> granite_families() { return kGraniteFamilies; }

}  // namespace tessera
