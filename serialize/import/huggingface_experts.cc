#include <cmath>

#include "graph/base/text.h"
#include "serialize/import/huggingface_classes.h"

namespace tessera {

void read_mixtral(HuggingfaceReader& r) {
  r.read_decoder("moe",
                 {.C = 4096,
                  .F = 14336,
                  .L = 32,
                  .H = 32,
                  .KV = 8,
                  .V = 32000,
                  .T = 131072,
                  .norm_eps = 1e-5,
                  .rope_theta = 1e6},
                 "hidden_act", "silu");
  r.read_rotation();
  r.read_window({});
  r.read_router(8, 2);
}

void read_qwen3_moe(HuggingfaceReader& r) {
  r.read_decoder("qwen3moe",
                 {.C = 2048, .F = 6144, .L = 24, .H = 32, .KV = 4, .V = 151936, .T = 32768, .norm_eps = 1e-6},
                 "hidden_act", "silu");
  r.read_rotation();
  const bool uses = r.fields.flag("use_sliding_window", false);
  if (uses) r.read_window(4096);
  r.read_biases();
  r.read_router(128, 8);
  r.flag("normalize") = r.fields.flag("norm_topk_prob", false);
  r.read_sparse_layers(768);
}

void read_qwen2_moe(HuggingfaceReader& r) {
  r.read_decoder(
      "qwen2moe",
      {.C = 2048, .F = 5632, .L = 24, .H = 16, .KV = 16, .V = 151936, .T = 32768, .norm_eps = 1e-6},
      "hidden_act", "silu");
  r.read_rotation();
  const bool uses = r.fields.flag("use_sliding_window", false);
  const int64_t window = r.fields.integer("sliding_window", 4096, 0, HuggingfaceReader::kLongestWindow);
  const int64_t until = r.fields.integer("max_window_layers", 28, 0, int64_t{1} << 31);
  r.read_windows(uses && window < r.size("T") ? window : 0,
                 [&](int64_t i) { return uses && i % 2 == 0 && i < until; });
  if (!r.fields.flag("qkv_bias", true)) r.flag("qkv_bias") = false;
  r.read_router(60, 4);
  r.flag("normalize") = r.fields.flag("norm_topk_prob", false);
  r.size("FS") = r.fields.size("shared_expert_intermediate_size", 5632);
  r.read_sparse_layers(1408);
}

void read_gpt_oss(HuggingfaceReader& r) {
  r.read_decoder("gpt-oss",
                 {.C = 2880,
                  .F = 2880,
                  .L = 36,
                  .H = 64,
                  .KV = 8,
                  .V = 201088,
                  .T = 131072,
                  .norm_eps = 1e-5,
                  .rope_theta = 150000,
                  .D = 64},
                 "hidden_act", "silu");
  r.default_rope = Json{{"rope_type", "yarn"}, {"factor", 32.0}, {"beta_fast", 32.0}, {"beta_slow", 1.0},
                    {"truncate", false},   {"original_max_position_embeddings", 4096}};
  r.read_rotation();
  r.read_windows(r.fields.integer("sliding_window", 128, 1, HuggingfaceReader::kLongestWindow),
                 [](int64_t i) { return i % 2 == 0; });
  r.flag("attention_bias") = r.fields.flag("attention_bias", true);
  r.read_router(128, 4);
  r.real("gate_limit") = r.positive("swiglu_limit", 7);
  r.fields.wants("swiglu_alpha", 1.702, "gates times sigmoid(1.702 gate)");
}

namespace {

// Fields common to DeepSeek V2 and V3.
void read_latent(HuggingfaceReader& r, const HuggingfaceDefaults& defaults, int64_t expert_width,
                 int64_t shared_experts) {
  r.read_decoder("deepseek2", defaults, "hidden_act", "silu");
  const int64_t rotated = r.fields.size("qk_rope_head_dim", 64), rest = r.fields.size("qk_nope_head_dim", 128);
  r.size("D") = rotated + rest;
  r.size("N") = rest;
  r.size("R") = r.rotated_part = rotated;
  r.size("VD") = r.fields.size("v_head_dim", 128);
  r.size("KA") = r.fields.size("kv_lora_rank", 512);
  const bool is_direct = r.json.contains("q_lora_rank") && r.json["q_lora_rank"].is_null();
  const int64_t rank = is_direct ? 0 : r.fields.size("q_lora_rank", 1536);
  if (rank > 0) r.size("QA") = rank;
  r.read_rotation();
  r.read_biases();
  // Scaled rotations also scale scores.
  if (const Json* rope = r.rope_object()) {
    JsonFields fields(*rope, "config.json: rope_parameters");
    const std::string type = fields.text("rope_type", fields.text("type", "default"));
    const double all = fields.real("mscale_all_dim", 0), factor = fields.real("factor", 1);
    if (type != "default" && all != 0 && factor > 1) {
      const double scale = 0.1 * all * std::log(factor) + 1;
      r.real("attention_scale") = scale * scale / std::sqrt(static_cast<double>(r.size("D")));
    }
  }
  r.size("FD") = r.size("F");
  r.size("F") = r.fields.size("moe_intermediate_size", expert_width);
  const int64_t shared = r.fields.integer("n_shared_experts", shared_experts, 0, 1024);
  if (shared > 0) r.size("FS") = shared * r.size("F");
  r.real("capacity") = 0;
}

void read_dense_first(HuggingfaceReader& r, int64_t otherwise) {
  const int64_t dense = r.fields.integer("first_k_dense_replace", otherwise, 0, HuggingfaceReader::kMostLayers);
  r.fields.wants("moe_layer_freq", 1, "experts in every layer after the first ones");
  if (dense == 0 || !r.fields.status().ok()) return;
  std::vector<int64_t>& layers = r.config().lists["expert_layers"];
  for (int64_t i = 0; i < r.L(); ++i) layers.push_back(i >= dense);
}

}  // namespace

void read_deepseek_v2(HuggingfaceReader& r) {
  read_latent(r,
              {.C = 4096, .F = 11008, .L = 32, .H = 32, .KV = 0, .V = 102400, .T = 2048, .norm_eps = 1e-6}, 1407,
              2);
  r.flag("rope_half") = false;
  r.read_mlp_bias();
  read_dense_first(r, 0);
  r.size("E") = r.fields.size("n_routed_experts", 64);
  r.size("K") = r.fields.size("num_experts_per_tok");
  r.fields.wants("scoring_func", "softmax", "scores that are probabilities");
  r.fields.wants("norm_topk_prob", false, "weights as they are");
  r.real("expert_scale") = r.positive("routed_scaling_factor", 1);
  const std::string method = r.fields.text("topk_method", "greedy");
  if (method == "group_limited_greedy") {
    r.size("groups") = r.fields.size("n_group");
    r.size("groups_used") = r.fields.size("topk_group");
  } else if (method != "greedy") {
    r.fields.fail(StatusCode::kUnsupported,
                  format("topk_method is '{}'; known: greedy, group_limited_greedy", method));
  }
}

void read_deepseek_v3(HuggingfaceReader& r) {
  read_latent(r,
              {.C = 7168, .F = 18432, .L = 61, .H = 128, .KV = 0, .V = 129280, .T = 4096, .norm_eps = 1e-6},
              2048, 1);
  r.flag("rope_half") = !r.fields.flag("rope_interleave", true);
  read_dense_first(r, 3);
  r.size("E") = r.fields.size("n_routed_experts", 256);
  r.size("K") = r.fields.size("num_experts_per_tok", 8);
  r.fields.wants("scoring_func", "sigmoid", "scores that are sigmoids");
  r.fields.wants("topk_method", "noaux_tc", "groups chosen by the sum of their two best");
  r.flag("expert_sigmoid") = true;
  r.flag("normalize") = r.fields.flag("norm_topk_prob", true);
  r.real("expert_scale") = r.positive("routed_scaling_factor", 2.5);
  r.size("groups") = r.fields.size("n_group", 8);
  r.size("groups_used") = r.fields.size("topk_group", 4);
  // Multi-token prediction layers follow the model's own; they are not read.
  const int64_t further = r.fields.integer("num_nextn_predict_layers", 0, 0, 64);
  for (int64_t i = 0; i < further && r.fields.status().ok(); ++i)
    r.out.ignored.push_back(format("model.layers.{}.", r.L() + i));
}

}  // namespace tessera
