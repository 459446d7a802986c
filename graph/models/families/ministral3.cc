// Ministral 3: Llama with a temperature of queries beyond the trained context.
//   tokens, positions i32 [B, T] -> logits f32 [B, T, V]
#include "graph/models/decoder.h"

namespace tessera {
namespace {

DecoderSizes ministral3_sizes(ConfigReader& reader) {
  DecoderSizes m = read_decoder_sizes(reader);
  read_windows(reader, m);
  read_rope_scaling(reader, m);
  read_query_temperature(reader, m);
  return m;
}

constexpr HuggingfaceClass kMinistral3Classes[] = {
    {"ministral3", "Ministral3ForCausalLM",
     [](HuggingfaceKeys& k) {
       k.decoder({.C = 4096, .F = 14336, .L = 34, .H = 32, .KV = 8, .V = 131072, .T = 262144, .norm_eps = 1e-5, .rope_theta = 1e6,
                  .D = 128});
       k.rotation({.scaling = R"({"rope_type": "yarn", "factor": 16.0, "original_max_position_embeddings": 16384, "beta_fast": 32.0,
                                  "beta_slow": 1.0, "mscale_all_dim": 1.0, "mscale": 1.0, "llama_4_scaling_beta": 0.1})",
                   .scales_queries = true});
       k.window({});
     },
     11}};

void mistral3_gguf(GgufKeys& k) {
  k.decoder();
  k.rotation({.log_multiplier = true});
  k.query_temperature("attention.temperature_scale");
  k.plain_scores();
}
constexpr GgufArchitecture kMinistral3Architectures[] = {{.name = "mistral3", .keys = mistral3_gguf, .rope_half = false}};

const ModelFamily kMinistral3Families[] = {{
    .name = "ministral3",
    .example = "ministral3:L=26,C=3072,H=32,KV=8,D=128,F=9216,V=131072,T=262144,query_beta=0.1,query_context=16384,tied",
    .huggingface = {kDecoderHuggingfaceNames},
    .gguf = {kDecoderGgufNames},
    .decoder = ministral3_sizes,
    .classes = kMinistral3Classes,
    .architectures = kMinistral3Architectures,
}};

}  // namespace

std::span<const ModelFamily> ministral3_families() { return kMinistral3Families; }

}  // namespace tessera
