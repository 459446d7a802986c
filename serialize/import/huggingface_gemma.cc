#include <cmath>

#include "graph/base/text.h"
#include "serialize/import/huggingface_classes.h"

namespace tessera {

namespace {

void read_capped(HuggingfaceReader& r, std::string_view family, const HuggingfaceDefaults& defaults,
                 double softcap, double logit_softcap) {
  r.read_decoder(family, defaults, "hidden_activation", "gelu_pytorch_tanh");
  r.read_biases();
  const double scalar = r.fields.real("query_pre_attn_scalar", 256.0);
  if (!(scalar > 0))
    r.fields.fail(StatusCode::kCorrupt, format("query_pre_attn_scalar is {}, wanted more than 0", scalar));
  if (scalar != static_cast<double>(r.size("D"))) r.real("attention_scale") = 1 / std::sqrt(scalar);
  // Gemma 3's class has the field but ignores it.
  if (family != "gemma3") softcap = r.cap("attn_logit_softcapping", softcap);
  logit_softcap = r.cap("final_logit_softcapping", logit_softcap);
  if (softcap != 0) r.real("softcap") = softcap;
  if (logit_softcap != 0) r.real("logit_softcap") = logit_softcap;
}

}  // namespace

void read_gemma(HuggingfaceReader& r) {
  // In this class hidden_act "gelu" means the tanh form.
  constexpr std::string_view kActivation = "hidden_act";
  const std::string found = r.fields.text(kActivation, "gelu_pytorch_tanh");
  r.read_decoder("gemma",
                 {.C = 3072,
                  .F = 24576,
                  .L = 28,
                  .H = 16,
                  .KV = 16,
                  .V = 256000,
                  .T = 8192,
                  .norm_eps = 1e-6,
                  .tied = true,
                  .D = 256},
                 kActivation, found == "gelu" ? "gelu" : "gelu_pytorch_tanh");
  r.read_rotation();
  r.read_biases();
  r.fields.wants("use_bidirectional_attention", false, "causal attention");
}

void read_gemma2(HuggingfaceReader& r) {
  read_capped(r, "gemma2",
              {.C = 2304,
               .F = 9216,
               .L = 26,
               .H = 8,
               .KV = 4,
               .V = 256000,
               .T = 8192,
               .norm_eps = 1e-6,
               .tied = true,
               .D = 256},
              50, 30);
  r.fields.wants("use_bidirectional_attention", false, "causal attention");
  r.read_rotation();
  r.read_windows(r.fields.integer("sliding_window", 4096, 1, HuggingfaceReader::kLongestWindow),
                 [](int64_t i) { return i % 2 == 0; });
}

void read_gemma3(HuggingfaceReader& r) {
  read_capped(r, "gemma3",
              {.C = 2304,
               .F = 9216,
               .L = 26,
               .H = 8,
               .KV = 4,
               .V = 262208,
               .T = 131072,
               .norm_eps = 1e-6,
               .rope_theta = 1e6,
               .tied = true,
               .D = 256},
              0, 0);
  const int64_t every = r.fields.integer("sliding_window_pattern", 6, 1, int64_t{1} << 31);
  int64_t window = r.fields.integer("sliding_window", 4096, 1, HuggingfaceReader::kLongestWindow);
  if (r.fields.flag("use_bidirectional_attention", false)) {
    r.flag("causal") = false;
    window = window / 2 + 1;
  }
  r.read_windows(window, [&](int64_t i) { return (i + 1) % every != 0; });
  // Older files have a separate base only for local layers.
  r.read_rotations(r.fields.real("rope_local_base_freq", 10000.0));
}

}  // namespace tessera
