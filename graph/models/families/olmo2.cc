// OLMo 2 and 3: Llama without a norm before each half; rms_norm on its output, and on q and on
// k across heads. OLMo 3 has windows, and a rotation of its own, unscaled, in layers with one.
//   tokens, positions i32 [B, T] -> logits f32 [B, T, V]
#include "graph/models/decoder.h"

namespace tessera {
namespace {

DecoderSizes olmo2_sizes(ConfigReader& reader) {
  DecoderSizes m = read_decoder_sizes(reader);
  read_windows(reader, m);
  read_rope_scaling(reader, m);
  read_biases(reader, m);
  m.window_theta = reader.real("window_theta", 0);
  m.input_norm = false;
  m.branch_norm = m.wide_norm = true;
  return m;
}

constexpr NameRule kOlmo2Huggingface[] = {
    {"block.#.attention_branch_norm", "model.layers.#.post_attention_layernorm.weight"},
    {"block.#.ffn_branch_norm", "model.layers.#.post_feedforward_layernorm.weight"},
};

constexpr HuggingfaceClass kOlmo2Classes[] = {
    {"olmo2", "Olmo2ForCausalLM",
     [](HuggingfaceKeys& k) {
       k.decoder({.C = 4096, .F = 11008, .L = 32, .H = 32, .KV = 0, .V = 50304, .T = 2048, .norm_eps = 1e-5});
       k.rotation();
       k.attention_bias();
     },
     1},
    {"olmo3", "Olmo3ForCausalLM",
     [](HuggingfaceKeys& k) {
       k.decoder({.C = 4096, .F = 11008, .L = 32, .H = 32, .KV = 0, .V = 50304, .T = 2048, .norm_eps = 1e-5, .rope_theta = 500000});
       k.windows({.otherwise = 4096, .every = 4});
       k.rotations({.local_theta = 500000});  // rope_theta applies to layers without a window only
       k.attention_bias();
     },
     1},
};

void olmo2_gguf(GgufKeys& k) {
  k.decoder();
  k.rotation();
  k.windows({.every = 4, .is_optional = true});
  if (k.has_windows()) k.real("rope.freq_base_swa", "window_theta", k.our_real("rope_theta"));
  k.plain_scores();
}
constexpr GgufArchitecture kOlmo2Architectures[] = {{.name = "olmo2", .keys = olmo2_gguf, .optional_biases = true}};

const ModelFamily kOlmo2Families[] = {{
    .name = "olmo2",
    .example = "olmo2:L=16,C=2048,H=16,F=8192,V=100352,T=4096,rope_half",
    .huggingface = {kOlmo2Huggingface, kDecoderHuggingfaceNames},
    .gguf = {kDecoderGgufNames},
    .decoder = olmo2_sizes,
    .classes = kOlmo2Classes,
    .architectures = kOlmo2Architectures,
}};

}  // namespace

std::span<const ModelFamily> olmo2_families() { return kOlmo2Families; }

}  // namespace tessera
