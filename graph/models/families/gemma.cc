// Gemma: Llama with gelu gates and embeddings times sqrt(C). Gemma 2 has an rms_norm also on the output of each half, soft
// caps on scores and logits, windows in every other layer; Gemma 3 an rms_norm on every head of q and k in place of the cap on
// scores, and a rotation of its own in layers with a window. Hugging Face stores a norm's weight less one.
//   tokens, positions i32 [B, T] -> logits f32 [B, T, V]
#include <cmath>

#include "graph/models/decoder.h"

namespace tessera {
namespace {

DecoderSizes gemma_sizes(ConfigReader& reader) {
  DecoderSizes m = read_decoder_sizes(reader);
  read_rope_scaling(reader, m);
  read_biases(reader, m);
  m.gelu_gate = true;
  m.embedding_scale = std::sqrt(static_cast<double>(m.C));
  return m;
}

// Of Gemma 2 and 3; every `full_every`th layer has no window.
DecoderSizes later_gemma_sizes(ConfigReader& reader, size_t full_every) {
  DecoderSizes m = gemma_sizes(reader);
  read_windows(reader, m, full_every);
  m.attention_scale = reader.real("attention_scale", 0);
  m.softcap = reader.real("softcap", 0);
  m.logit_softcap = reader.real("logit_softcap", 0);
  m.branch_norm = true;
  return m;
}

DecoderSizes gemma2_sizes(ConfigReader& reader) { return later_gemma_sizes(reader, 2); }

DecoderSizes gemma3_sizes(ConfigReader& reader) {
  DecoderSizes m = later_gemma_sizes(reader, 6);
  m.window_theta = reader.real("window_theta", 10000);
  m.head_norm = true;
  return m;
}

constexpr ActivationKey kLaterActivation = {"hidden_activation", "gelu_pytorch_tanh", ""};
constexpr int64_t kLayersOfGemma2_27B = 46, kLayersOfGemma3_27B = 62;

constexpr HuggingfaceClass kGemmaClasses[] = {
    {"gemma", "GemmaForCausalLM",
     [](HuggingfaceKeys& k) {
       k.decoder({.C = 3072, .F = 24576, .L = 28, .H = 16, .KV = 16, .V = 256000, .T = 8192, .norm_eps = 1e-6, .tied = true, .D = 256},
                 {"hidden_act", "gelu_pytorch_tanh", "gelu"});  // in this class "gelu" means the tanh form
       k.rotation();
       k.attention_bias();
       k.wants("use_bidirectional_attention", "false", "causal attention");
     },
     0}};
constexpr HuggingfaceClass kGemma2Classes[] = {
    {"gemma2", "Gemma2ForCausalLM",
     [](HuggingfaceKeys& k) {
       k.decoder({.C = 2304, .F = 9216, .L = 26, .H = 8, .KV = 4, .V = 256000, .T = 8192, .norm_eps = 1e-6, .tied = true, .D = 256},
                 kLaterActivation);
       k.attention_bias();
       k.score_divisor("query_pre_attn_scalar", 256);
       k.cap("attn_logit_softcapping", "softcap", 50);
       k.cap("final_logit_softcapping", "logit_softcap", 30);
       k.wants("use_bidirectional_attention", "false", "causal attention");
       k.rotation();
       k.windows({.otherwise = 4096, .must_have = true, .every = 2});
     },
     0}};
constexpr HuggingfaceClass kGemma3Classes[] = {
    {"gemma3_text", "Gemma3ForCausalLM",
     [](HuggingfaceKeys& k) {
       k.decoder({.C = 2304, .F = 9216, .L = 26, .H = 8, .KV = 4, .V = 262208, .T = 131072, .norm_eps = 1e-6, .rope_theta = 1e6,
                  .tied = true, .D = 256},
                 kLaterActivation);
       k.attention_bias();
       k.score_divisor("query_pre_attn_scalar", 256);
       k.cap("final_logit_softcapping", "logit_softcap", 0);  // the class ignores attn_logit_softcapping
       k.windows({.otherwise = 4096,
                  .must_have = true,
                  .every = 6,
                  .every_key = "sliding_window_pattern",
                  .both_directions = "true"});
       k.rotations({.local_theta = 10000, .local_key = "rope_local_base_freq"});
     },
     0, "Gemma3Text"}};

void gemma_gguf(GgufKeys& k) {
  k.decoder();
  k.rotation();
}
constexpr GgufArchitecture kGemmaArchitectures[] = {{.name = "gemma", .keys = gemma_gguf, .is_tied = true, .optional_biases = true}};
void gemma2_gguf(GgufKeys& k) {
  k.decoder();
  k.rotation();
  k.real("attn_logit_softcapping", "softcap", 50);
  k.real("final_logit_softcapping", "logit_softcap", 30);
  k.largest_scores(kLayersOfGemma2_27B);
  k.windows({.otherwise = 4096, .every = 2});
}
constexpr GgufArchitecture kGemma2Architectures[] = {{.name = "gemma2", .keys = gemma2_gguf, .is_tied = true, .optional_biases = true}};
void gemma3_gguf(GgufKeys& k) {
  k.decoder();
  k.rotation();
  k.real("rope.freq_base_swa", "window_theta", 10000);
  k.real("final_logit_softcapping", "logit_softcap", 0);
  k.largest_scores(kLayersOfGemma3_27B);
  k.windows({.every = 6});
}
// EmbeddingGemma.
void gemma_embedding_gguf(GgufKeys& k) {
  k.decoder();
  k.rotation();
  k.real("rope.freq_base_swa", "window_theta", 10000);
  k.real("final_logit_softcapping", "logit_softcap", 0);
  k.windows({.every = 6, .has_pattern = true});
  k.dense_modules();
}
constexpr GgufArchitecture kGemma3Architectures[] = {
    {.name = "gemma3", .keys = gemma3_gguf, .optional_biases = true},
    {.name = "gemma-embedding", .keys = gemma_embedding_gguf, .optional_biases = true, .bidirectional = true}};

constexpr NameRule kGemmaNames[] = {
    {"block.#.attention_norm", "model.layers.#.input_layernorm.weight", ValueChange::kPlusOne},
    {"block.#.ffn_norm", "model.layers.#.post_attention_layernorm.weight", ValueChange::kPlusOne},
    {"final_norm", "model.norm.weight", ValueChange::kPlusOne},
};
constexpr NameRule kGemma2Names[] = {
    {"block.#.attention_norm", "model.layers.#.input_layernorm.weight", ValueChange::kPlusOne},
    {"block.#.attention_branch_norm", "model.layers.#.post_attention_layernorm.weight", ValueChange::kPlusOne},
    {"block.#.ffn_norm", "model.layers.#.pre_feedforward_layernorm.weight", ValueChange::kPlusOne},
    {"block.#.ffn_branch_norm", "model.layers.#.post_feedforward_layernorm.weight", ValueChange::kPlusOne},
    {"block.#.q_norm", "model.layers.#.self_attn.q_norm.weight", ValueChange::kPlusOne},
    {"block.#.k_norm", "model.layers.#.self_attn.k_norm.weight", ValueChange::kPlusOne},
    {"final_norm", "model.norm.weight", ValueChange::kPlusOne},
};

constexpr NameRule kGemma3GgufNames[] = {{"dense.0", "dense_2.weight"}, {"dense.1", "dense_3.weight"}};

const ModelFamily kGemmaFamilies[] = {
    {.name = "gemma",
     .example = "gemma:L=18,C=2048,H=8,KV=1,D=256,F=16384,V=256000,T=8192,tied,rope_half",
     .huggingface = {kGemmaNames, kDecoderHuggingfaceNames},
     .gguf = {kDecoderGgufNames},
     .decoder = gemma_sizes,
     .classes = kGemmaClasses,
     .architectures = kGemmaArchitectures},
    {.name = "gemma2",
     .example = "gemma2:L=26,C=2304,H=8,KV=4,D=256,F=9216,V=256000,T=8192,window=4096,tied,rope_half",
     .huggingface = {kGemma2Names, kDecoderHuggingfaceNames},
     .gguf = {kDecoderGgufNames},
     .decoder = gemma2_sizes,
     .classes = kGemma2Classes,
     .architectures = kGemma2Architectures},
    {.name = "gemma3",
     .example = "gemma3:L=26,C=1152,H=4,KV=1,D=256,F=6912,V=262144,T=32768,window=512,tied,rope_half",
     .huggingface = {kGemma2Names, kDecoderHuggingfaceNames},
     .gguf = {kGemma3GgufNames, kDecoderGgufNames},
     .decoder = gemma3_sizes,
     .classes = kGemma3Classes,
     .architectures = kGemma3Architectures},
};

}  // namespace

std::span<const ModelFamily> gemma_families() { return kGemmaFamilies; }

}  // namespace tessera
