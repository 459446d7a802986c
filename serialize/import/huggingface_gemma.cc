#include <cmath>

#include "graph/base/text.h"
#include "serialize/import/huggingface_classes.h"

namespace tessera {

namespace {

void read_capped(HuggingfaceReader& r, std::string_view family, const HuggingfaceDefaults& defaults,
                 double softcap, double logit_softcap) {
  const bool is_old =
      !r.json.contains("hidden_activation") && r.json.contains("hidden_act") && family != "gemma3";
  r.read_decoder(family, defaults, is_old ? "hidden_act" : "hidden_activation", "gelu_pytorch_tanh");
  r.read_biases();
  r.fields.wants("use_bidirectional_attention", false, "causal attention");
  const double scalar = r.fields.real("query_pre_attn_scalar", 256.0);
  if (!(scalar > 0))
    r.fields.fail(StatusCode::kCorrupt, format("query_pre_attn_scalar is {}, wanted more than 0", scalar));
  if (scalar != static_cast<double>(r.size("D"))) r.real("attention_scale") = 1 / std::sqrt(scalar);
  softcap = r.cap("attn_logit_softcapping", softcap);
  logit_softcap = r.cap("final_logit_softcapping", logit_softcap);
  if (softcap != 0) r.real("softcap") = softcap;
  if (logit_softcap != 0) r.real("logit_softcap") = logit_softcap;
}

}  // namespace

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
  r.read_windows(r.fields.integer("sliding_window", 4096, 1, HuggingfaceReader::kLongestWindow),
                 [&](int64_t i) { return (i + 1) % every != 0; });
  // Newer files have a rotation for each kind of layer, older ones a base for the local ones.
  r.real("window_theta") = r.fields.real("rope_local_base_freq", 10000.0);
  const Json empty = Json::object();
  const Json* rope = r.rope_object();
  if (rope && (rope->contains("full_attention") || rope->contains("sliding_attention"))) {
    const auto part = [&](const char* kind) -> const Json& {
      const auto at = rope->find(kind);
      return at == rope->end() || !at->is_object() ? empty : *at;
    };
    r.rotation_from(part("full_attention"), r.default_theta, "rope_parameters: full_attention", true);
    r.real("window_theta") = r.rotation_from(part("sliding_attention"), r.real("window_theta"),
                                             "rope_parameters: sliding_attention", false);
  } else {
    r.rotation_from(rope ? *rope : empty, r.default_theta, "rope_scaling", true);
  }
}

}  // namespace tessera
