#include "serialize/import/gguf_hyperparameters.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "graph/base/text.h"

namespace tessera {
namespace {

constexpr int64_t kMaxLayers = 1024;

Status unsupported(std::string message) { return Status(StatusCode::kUnsupported, std::move(message)); }

// A key that scales or bounds something, and its values that change nothing.
struct NeutralKey {
  std::string_view key;
  double neutral, also_neutral;
};
constexpr NeutralKey kNeutralKeys[] = {
    {"logit_scale", 1, 0},
    {"embedding_scale", 1, 0},
    {"residual_scale", 1, 0},
    {"attn_logit_softcapping", 0, 0},
    {"final_logit_softcapping", 0, 0},
    {"attention.clamp_kqv", 0, 0},
    {"attention.max_alibi_bias", 0, 0},
    {"expert_weights_scale", 1, 0},
    // Whatever the type of scaling is, and without one too: the format's reference reader multiplies by it.
    {"rope.scaling.attn_factor", 1, 1},
    {"rope.scaling.yarn_attn_factor", 1, -1},
    {"rope.scaling.yarn_ext_factor", 0, -1},
    {"rope.scaling.yarn_log_multiplier", 0, 0},
};

class HyperparameterReader {
 public:
  HyperparameterReader(const GgufFile& file, std::string_view architecture)
      : file_(file), prefix_(std::string(architecture) + ".") {
    config.family = architecture;
  }

  Status read_llama() {
    TSR_RETURN_IF_ERROR(read_common());
    int64_t& head_size = config.sizes["D"];
    TSR_ASSIGN_OR_RETURN(head_size, integer("attention.key_length", C() / H()));
    TSR_ASSIGN_OR_RETURN(config.sizes["KV"], layer_integer("attention.head_count_kv", H()));
    TSR_ASSIGN_OR_RETURN(config.reals["norm_eps"], file_.real(prefix_ + "attention.layer_norm_rms_epsilon"));
    TSR_ASSIGN_OR_RETURN(config.reals["rope_theta"], real("rope.freq_base", 10000.0));
    TSR_ASSIGN_OR_RETURN(const int64_t value_size, integer("attention.value_length", head_size));
    TSR_ASSIGN_OR_RETURN(const int64_t rotated, integer("rope.dimension_count", head_size));
    if (rotated != head_size || value_size != head_size)
      return unsupported(format("heads of {} with {} rotated and values of {}; all three must be equal",
                                head_size, rotated, value_size));
    TSR_RETURN_IF_ERROR(check_rope_scaling());
    // Attention to the last `window` tokens alone is what all of a context that is no longer gives.
    TSR_ASSIGN_OR_RETURN(const int64_t window, integer("attention.sliding_window", T()));
    if (window > 0) T() = std::min(T(), window);
    return check_attention_scale(head_size);
  }

  Status read_gpt2() {
    TSR_RETURN_IF_ERROR(read_common());
    TSR_ASSIGN_OR_RETURN(config.reals["norm_eps"], file_.real(prefix_ + "attention.layer_norm_epsilon"));
    TSR_ASSIGN_OR_RETURN(const int64_t key_value_heads, layer_integer("attention.head_count_kv", H()));
    TSR_ASSIGN_OR_RETURN(const int64_t head_size, integer("attention.key_length", C() / H()));
    TSR_ASSIGN_OR_RETURN(const int64_t value_size, integer("attention.value_length", head_size));
    if (key_value_heads != H() || head_size != C() / H() || value_size != head_size)
      return unsupported(format("{} heads with {} of keys, {} of {} channels and values of {}; a gpt2 model "
                                "has as many of keys, and divides its {} channels among them",
                                H(), key_value_heads, head_size, C(), value_size, C()));
    return check_attention_scale(head_size);
  }

  ModelConfig config;

 private:
  int64_t& C() { return config.sizes["C"]; }
  int64_t& H() { return config.sizes["H"]; }
  int64_t& T() { return config.sizes["T"]; }

  Result<int64_t> integer(std::string_view key, int64_t fallback) const {
    return file_.integer(prefix_ + std::string(key), fallback);
  }
  Result<double> real(std::string_view key, double fallback) const {
    return file_.real(prefix_ + std::string(key), fallback);
  }

  // A number, or one for each layer where all are equal.
  Result<int64_t> layer_integer(std::string_view key, std::optional<int64_t> fallback = {}) const {
    const std::string name = prefix_ + std::string(key);
    if (!file_.has_array(name)) return file_.integer(name, fallback);
    TSR_ASSIGN_OR_RETURN(const std::vector<int64_t> values, file_.integers(name));
    const int64_t layers = config.sizes.at("L");
    if (static_cast<int64_t>(values.size()) != layers)
      return Status(StatusCode::kCorrupt, format("{} has {} values, the model has {} layers", name,
                                                 values.size(), layers));
    for (size_t i = 1; i < values.size(); ++i)
      if (values[i] != values[0])
        return unsupported(format("{} is {} in layer 0 and {} in layer {}; only models whose layers are "
                                  "alike can be imported",
                                  name, values[0], values[i], i));
    if (values.empty()) return Status(StatusCode::kCorrupt, format("{} has no values", name));
    return values[0];
  }

  Status read_common() {
    TSR_ASSIGN_OR_RETURN(const int64_t layers, file_.integer(prefix_ + "block_count"));
    if (layers < 1 || layers > kMaxLayers)
      return Status(layers < 1 ? StatusCode::kCorrupt : StatusCode::kUnsupported,
                    format("{}block_count is {}; wanted 1 to {}", prefix_, layers, kMaxLayers));
    config.sizes["L"] = layers;
    TSR_ASSIGN_OR_RETURN(C(), file_.integer(prefix_ + "embedding_length"));
    TSR_ASSIGN_OR_RETURN(H(), layer_integer("attention.head_count"));
    TSR_ASSIGN_OR_RETURN(config.sizes["F"], layer_integer("feed_forward_length"));
    TSR_ASSIGN_OR_RETURN(T(), file_.integer(prefix_ + "context_length"));
    if (H() < 1) return Status(StatusCode::kCorrupt, prefix_ + "attention.head_count is not positive");
    for (const bool wanted : {true, false}) {
      const std::string key = prefix_ + (wanted ? "attention.causal" : "use_parallel_residual");
      TSR_ASSIGN_OR_RETURN(const bool found, file_.flag(key, wanted));
      if (found != wanted)
        return unsupported(format("{} is {}; only models with {} can be imported", key, found, wanted));
    }
    TSR_RETURN_IF_ERROR(read_experts());
    for (const NeutralKey& row : kNeutralKeys) {
      TSR_ASSIGN_OR_RETURN(const double value, real(row.key, row.neutral));
      if (value != row.neutral && value != row.also_neutral)
        return unsupported(format("{}{} is {}; only models without it (or with {}) can be imported", prefix_,
                                  row.key, value, row.neutral));
    }
    return {};
  }

  // A mixture of experts is a llama whose feed-forward half is several. A token visits its experts whatever others
  // do: none is dropped.
  Status read_experts() {
    TSR_ASSIGN_OR_RETURN(const int64_t experts, integer("expert_count", 0));
    if (experts == 0) return {};
    if (config.family != "llama")
      return unsupported(format("a {} of {} experts is not supported", config.family, experts));
    TSR_ASSIGN_OR_RETURN(const int64_t used, integer("expert_used_count", 0));
    if (experts < 1 || used < 1 || used > experts)
      return Status(
          StatusCode::kCorrupt,
          format("{}expert_count is {} and {}expert_used_count {}; wanted 1 or more, and no more used "
                 "than there are",
                 prefix_, experts, prefix_, used));
    TSR_ASSIGN_OR_RETURN(const int64_t shared, integer("expert_shared_count", 0));
    if (shared != 0)
      return unsupported(
          format("{}expert_shared_count is {}; only models without it (or with 0) can be imported", prefix_,
                 shared));
    constexpr int64_t kSoftmax = 1;
    TSR_ASSIGN_OR_RETURN(const int64_t gating, integer("expert_gating_func", kSoftmax));
    if (gating != kSoftmax && gating != 0)
      return unsupported(
          format("{}expert_gating_func is {}; only models whose routers end with a softmax ({}) can "
                 "be imported",
                 prefix_, gating, kSoftmax));
    config.family = "moe";
    config.sizes["E"] = experts;
    config.sizes["K"] = used;
    config.reals["capacity"] = 0;
    int64_t& F = config.sizes["F"];
    TSR_ASSIGN_OR_RETURN(F, integer("expert_feed_forward_length", F));
    return {};
  }

  // As the format's reference reader has it: linear where no type is said, by the factor or its older name.
  Status check_rope_scaling() const {
    TSR_ASSIGN_OR_RETURN(const std::string scaling, file_.text(prefix_ + "rope.scaling.type", "linear"));
    TSR_ASSIGN_OR_RETURN(const double older, real("rope.scale_linear", 1.0));
    TSR_ASSIGN_OR_RETURN(const double factor, real("rope.scaling.factor", older));
    if (scaling == "none" || (scaling == "linear" && (factor == 1.0 || factor == 0.0))) return {};
    return unsupported(format("rotary positions with {} scaling by {} are not supported", scaling, factor));
  }

  Status check_attention_scale(int64_t head_size) const {
    TSR_ASSIGN_OR_RETURN(const double scale, real("attention.scale", 0.0));
    if (scale == 0.0 || std::abs(scale * std::sqrt(static_cast<double>(head_size)) - 1) <= 1e-5) return {};
    return unsupported(format("{}attention.scale is {}, wanted one over the root of the head size {}",
                              prefix_, scale, head_size));
  }

  const GgufFile& file_;
  const std::string prefix_;
};

}  // namespace

Result<ModelConfig> read_llama_hyperparameters(const GgufFile& file) {
  HyperparameterReader reader(file, "llama");
  TSR_RETURN_IF_ERROR(reader.read_llama());
  return std::move(reader.config);
}

Result<ModelConfig> read_gpt2_hyperparameters(const GgufFile& file) {
  HyperparameterReader reader(file, "gpt2");
  TSR_RETURN_IF_ERROR(reader.read_gpt2());
  return std::move(reader.config);
}

}  // namespace tessera
