#include <vector>

#include "graph/base/quote.h"
#include "graph/base/text.h"
#include "serialize/import/huggingface_classes.h"

namespace tessera {

void read_llama(HuggingfaceReader& r) {
  r.read_decoder("llama",
                 {.C = 4096, .F = 11008, .L = 32, .H = 32, .KV = 0, .V = 32000, .T = 2048, .norm_eps = 1e-6},
                 "hidden_act", "silu");
  r.read_rotation();
  r.read_biases();
  r.read_mlp_bias();
}

void read_mistral(HuggingfaceReader& r) {
  r.read_decoder(
      "llama", {.C = 4096, .F = 14336, .L = 32, .H = 32, .KV = 8, .V = 32000, .T = 131072, .norm_eps = 1e-6},
      "hidden_act", "silu");
  r.read_rotation();
  r.read_window(4096);
  const bool slides = !r.fields.is_given("sliding_window") ||
                      r.fields.integer("sliding_window", 0, 0, HuggingfaceReader::kLongestWindow) > 0;
  for (const std::string& type : r.fields.texts("layer_types", static_cast<size_t>(HuggingfaceReader::kMostLayers)))
    if (type != (slides ? "sliding_attention" : "full_attention"))
      r.fields.fail(StatusCode::kUnsupported,
                    format("layer_types has '{}'; the class of mistral has one kind of layers: sliding_attention with a "
                           "sliding_window, else full_attention",
                           quote(type, 60)));
}

void read_qwen2(HuggingfaceReader& r) {
  r.read_decoder(
      "qwen2", {.C = 4096, .F = 22016, .L = 32, .H = 32, .KV = 32, .V = 151936, .T = 32768, .norm_eps = 1e-6},
      "hidden_act", "silu");
  r.read_rotation();
  r.read_window_from_layer();
}

void read_qwen3(HuggingfaceReader& r) {
  r.read_decoder("qwen3",
                 {.C = 4096,
                  .F = 22016,
                  .L = 32,
                  .H = 32,
                  .KV = 32,
                  .V = 151936,
                  .T = 32768,
                  .norm_eps = 1e-6,
                  .D = 128},
                 "hidden_act", "silu");
  r.read_rotation();
  r.read_window_from_layer();
  r.read_biases();
}

void read_phi3(HuggingfaceReader& r) {
  r.read_decoder("phi3",
                 {.C = 3072, .F = 8192, .L = 32, .H = 32, .KV = 0, .V = 32064, .T = 4096, .norm_eps = 1e-5},
                 "hidden_act", "silu");
  r.original_context = 4096;
  r.rotates_part = true;
  r.read_rotation();
  r.read_window({});
}

void read_smollm3(HuggingfaceReader& r) {
  r.read_decoder("smollm3",
                 {.C = 2048,
                  .F = 11008,
                  .L = 36,
                  .H = 16,
                  .KV = 4,
                  .V = 128256,
                  .T = 32768,
                  .norm_eps = 1e-6,
                  .rope_theta = 2e6,
                  .tied = true},
                 "hidden_act", "silu");
  r.read_rotation();
  r.read_biases();
  r.read_mlp_bias();
  const int64_t every = r.fields.integer("no_rope_layer_interval", 4, 1, int64_t{1} << 31);
  std::vector<int64_t> turned;
  const std::vector<double> given =
      r.fields.reals("no_rope_layers", static_cast<size_t>(HuggingfaceReader::kMostLayers));
  if (!given.empty() && static_cast<int64_t>(given.size()) != r.L())
    r.fields.fail(StatusCode::kCorrupt,
                  format("no_rope_layers has {} numbers, the model has {} layers", given.size(), r.L()));
  if (!r.fields.status().ok()) return;
  for (int64_t i = 0; i < r.L(); ++i)
    turned.push_back(given.empty() ? (i + 1) % every != 0 : given[static_cast<size_t>(i)] != 0);
  r.config().lists["rope_layers"] = turned;
  const bool uses = r.fields.flag("use_sliding_window", false);
  const int64_t window = r.fields.integer("sliding_window", 0, 0, HuggingfaceReader::kLongestWindow);
  r.read_windows(window,
                 [&](int64_t i) { return uses && window > 0 && turned[static_cast<size_t>(i)] == 0; });
}

void read_olmo2(HuggingfaceReader& r) {
  r.read_decoder(
      "olmo2",
      {.C = 4096, .F = 11008, .L = 32, .H = 32, .KV = 0, .V = 50304, .T = 2048, .norm_eps = 1e-5},
      "hidden_act", "silu");
  r.read_rotation();
  r.read_biases();
}

void read_olmo3(HuggingfaceReader& r) {
  r.read_decoder("olmo2",
                 {.C = 4096,
                  .F = 11008,
                  .L = 32,
                  .H = 32,
                  .KV = 0,
                  .V = 50304,
                  .T = 2048,
                  .norm_eps = 1e-5,
                  .rope_theta = 500000},
                 "hidden_act", "silu");
  r.read_windows(r.fields.integer("sliding_window", 4096, 1, HuggingfaceReader::kLongestWindow),
                 [](int64_t i) { return (i + 1) % 4 != 0; });
  r.read_rotations(500000);  // rope_theta applies to layers without a window only
  r.read_biases();
}

void read_granite(HuggingfaceReader& r) {
  r.read_decoder(
      "granite",
      {.C = 4096, .F = 11008, .L = 32, .H = 32, .KV = 0, .V = 32000, .T = 2048, .norm_eps = 1e-6},
      "hidden_act", "silu");
  r.read_rotation();
  r.read_biases();
  r.read_mlp_bias();
  r.real("attention_scale") = r.positive("attention_multiplier", 1);
  r.real("embedding_scale") = r.positive("embedding_multiplier", 1);
  r.real("residual_scale") = r.positive("residual_multiplier", 1);
  r.real("logit_scale") = 1 / r.positive("logits_scaling", 1);
}

void read_gpt2(HuggingfaceReader& r) {
  r.config().family = "gpt2";
  r.size("C") = r.fields.size("n_embd", 768);
  r.size("L") = r.fields.integer("n_layer", 12, 1, HuggingfaceReader::kMostLayers);
  r.size("H") = r.fields.size("n_head", 12);
  r.size("F") = r.fields.size("n_inner", 4 * r.size("C"));
  r.size("V") = r.fields.size("vocab_size", 50257);
  r.size("T") = r.fields.size("n_positions", 1024);
  r.real("norm_eps") = r.fields.real("layer_norm_epsilon", 1e-5);
  r.flag("tied") = r.fields.flag("tie_word_embeddings", true);
  const std::string activation = r.fields.text("activation_function", "gelu_new");
  if (activation != "gelu_new" && activation != "gelu_pytorch_tanh" && activation != "gelu_fast")
    r.fields.fail(
        StatusCode::kUnsupported,
        format("activation_function is '{}'; only a gpt2 model with 'gelu_new' can be imported", activation));
  r.fields.wants("scale_attn_weights", true, "scores times 1/sqrt(D)");
  r.fields.wants("scale_attn_by_inverse_layer_idx", false, "scores alike in every layer");
  r.fields.wants("add_cross_attention", false, "no encoder before it");
}

}  // namespace tessera
