#include "serialize/import/gguf_hyperparameters.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "graph/base/text.h"

namespace tessera {
namespace {

constexpr int64_t kMaxLayers = 1024;

Status unsupported(std::string message) { return Status(StatusCode::kUnsupported, std::move(message)); }

// NeutralKey: a key that scales or bounds something, and its values without effect.
struct NeutralKey {
  std::string_view key;
  double neutral, also_neutral;
  std::string_view family = {};  // prefix of the families that have it
};
constexpr NeutralKey kNeutralKeys[] = {
    {"logit_scale", 1, 0, "granite"},
    {"embedding_scale", 1, 0, "granite"},
    {"residual_scale", 1, 0, "granite"},
    {"attn_logit_softcapping", 0, 0, "gemma"},
    {"final_logit_softcapping", 0, 0, "gemma"},
    {"attention.clamp_kqv", 0, 0},
    {"attention.max_alibi_bias", 0, 0},
    {"expert_weights_scale", 1, 0, "deepseek2"},
    {"rope.scaling.yarn_attn_factor", 1, -1},
    {"rope.scaling.yarn_ext_factor", 1, -1},
    {"rope.scaling.yarn_log_multiplier", 0, 0, "deepseek2"},
};

class HyperparameterReader {
 public:
  HyperparameterReader(const GgufFile& file, std::string_view architecture)
      : file_(file), prefix_(std::string(architecture) + ".") {
    config().family = architecture;
  }

  using Read = Status (HyperparameterReader::*)();

  Status read_llama() {
    TSR_RETURN_IF_ERROR(read_decoder(false));
    TSR_RETURN_IF_ERROR(read_rope_scaling());
    TSR_ASSIGN_OR_RETURN(const int64_t window, integer("attention.sliding_window", 0));
    if (window > 0 && window < T()) config().sizes["window"] = window;
    return read_attention_scale();
  }

  Status read_qwen2() {
    TSR_RETURN_IF_ERROR(read_decoder(true));
    TSR_RETURN_IF_ERROR(read_rope_scaling());
    return read_attention_scale();
  }

  Status read_qwen3() {
    TSR_RETURN_IF_ERROR(read_decoder(true));
    TSR_RETURN_IF_ERROR(read_rope_scaling());
    return read_attention_scale();
  }

  Status read_gemma2() {
    TSR_RETURN_IF_ERROR(read_decoder(true));
    TSR_RETURN_IF_ERROR(read_rope_scaling());
    TSR_ASSIGN_OR_RETURN(config().reals["softcap"], real("attn_logit_softcapping", 50));
    TSR_ASSIGN_OR_RETURN(config().reals["logit_softcap"], real("final_logit_softcapping", 30));
    constexpr int64_t kLayersOf27B = 46;
    read_gemma_scale(kLayersOf27B);
    return read_windows(4096, 2);
  }

  Status read_gemma3() {
    TSR_RETURN_IF_ERROR(read_decoder(true));
    TSR_RETURN_IF_ERROR(read_rope_scaling());
    TSR_ASSIGN_OR_RETURN(config().reals["window_theta"], real("rope.freq_base_swa", 10000));
    TSR_ASSIGN_OR_RETURN(config().reals["logit_softcap"], real("final_logit_softcapping", 0));
    constexpr int64_t kLayersOf27B = 62;
    read_gemma_scale(kLayersOf27B);
    return read_windows(0, 6);
  }

  Status read_gemma() {
    TSR_RETURN_IF_ERROR(read_decoder(true));
    return read_rope_scaling();
  }

  Status read_olmo2() {
    TSR_RETURN_IF_ERROR(read_decoder(true));
    TSR_RETURN_IF_ERROR(read_rope_scaling());
    TSR_RETURN_IF_ERROR(read_windows(0, 4));
    if (config().lists.contains("windows")) {
      TSR_ASSIGN_OR_RETURN(config().reals["window_theta"],
                           real("rope.freq_base_swa", config().reals["rope_theta"]));
    }
    return read_attention_scale();
  }

  Status read_granite() {
    TSR_RETURN_IF_ERROR(read_decoder(false));
    TSR_RETURN_IF_ERROR(read_rope_scaling());
    const std::pair<const char*, const char*> kFactors[] = {{"attention.scale", "attention_scale"},
                                                            {"embedding_scale", "embedding_scale"},
                                                            {"residual_scale", "residual_scale"},
                                                            {"logit_scale", "logit_scale"}};
    for (const auto& [key, name] : kFactors) {
      TSR_ASSIGN_OR_RETURN(const double value, real(key, 0));
      if (value < 0)
        return Status(StatusCode::kCorrupt, format("{}{} is {}, wanted more than 0", prefix_, key, value));
      if (value != 0) config().reals[name] = key == std::string_view("logit_scale") ? 1 / value : value;
    }
    return {};
  }

  Status read_qwen2moe() {
    TSR_RETURN_IF_ERROR(read_decoder(true));
    TSR_RETURN_IF_ERROR(read_rope_scaling());
    config().flags["normalize"] = false;
    TSR_ASSIGN_OR_RETURN(const int64_t dense, layer_integer("feed_forward_length"));
    TSR_ASSIGN_OR_RETURN(config().sizes["FS"], integer("expert_shared_feed_forward_length", dense));
    return read_attention_scale();
  }

  Status read_gpt_oss() {
    TSR_RETURN_IF_ERROR(read_decoder(true));
    TSR_RETURN_IF_ERROR(read_rope_scaling(false));
    TSR_RETURN_IF_ERROR(read_windows(0, 2));
    return read_attention_scale();
  }

  // Heads are as in the model, or as the reader computes: of the latent vector's width.
  Status read_deepseek2() {
    TSR_RETURN_IF_ERROR(read_common());
    TSR_RETURN_IF_ERROR(read_norm_and_base());
    found.may_have_biases = true;
    auto& sizes = config().sizes;
    TSR_ASSIGN_OR_RETURN(sizes["KA"], file_.integer(prefix_ + "attention.kv_lora_rank"));
    TSR_ASSIGN_OR_RETURN(const int64_t rank, integer("attention.q_lora_rank", 0));
    if (rank != 0) sizes["QA"] = rank;
    TSR_ASSIGN_OR_RETURN(const int64_t key_length, integer("attention.key_length", 0));
    TSR_ASSIGN_OR_RETURN(D(), integer("attention.key_length_mla", key_length));
    TSR_ASSIGN_OR_RETURN(const int64_t value_length, integer("attention.value_length", D()));
    TSR_ASSIGN_OR_RETURN(sizes["VD"], integer("attention.value_length_mla", value_length));
    TSR_ASSIGN_OR_RETURN(sizes["R"], file_.integer(prefix_ + "rope.dimension_count"));
    if (sizes["R"] < 2 || sizes["R"] % 2 != 0 || D() <= sizes["R"])
      return Status(
          StatusCode::kCorrupt,
          format("heads of {} numbers of which rope.dimension_count, {}, are rotated; wanted an even "
                 "number, and others",
                 D(), sizes["R"]));
    sizes["N"] = D() - sizes["R"];
    TSR_RETURN_IF_ERROR(read_rope_scaling());
    TSR_RETURN_IF_ERROR(read_deepseek_experts());
    return {};
  }

  Status read_phi3() {
    TSR_RETURN_IF_ERROR(read_decoder(true));
    TSR_ASSIGN_OR_RETURN(found.original_context, integer("rope.scaling.original_context_length", T()));
    TSR_ASSIGN_OR_RETURN(found.attention_factor, real("rope.scaling.attn_factor", 1));
    if (found.original_context < 1 || !(found.attention_factor > 0))
      return Status(
          StatusCode::kCorrupt,
          format("{}rope.scaling has an original context of {} and a factor {}, wanted positive ones",
                 prefix_, found.original_context, found.attention_factor));
    TSR_ASSIGN_OR_RETURN(const std::string type, file_.text(prefix_ + "rope.scaling.type", "none"));
    if (type != "none" && type != "longrope")
      return unsupported(format("{}rope.scaling.type is '{}'; known: none, longrope", prefix_, type));
    TSR_ASSIGN_OR_RETURN(const int64_t window, integer("attention.sliding_window", 0));
    if (window > 0 && window < T()) config().sizes["window"] = window;
    return read_attention_scale();
  }

  Status read_smollm3() {
    TSR_RETURN_IF_ERROR(read_decoder(false));
    TSR_RETURN_IF_ERROR(read_rope_scaling());
    constexpr int64_t kRopeInterval = 4;  // every fourth layer does not rotate
    std::vector<int64_t>& turned = config().lists["rope_layers"];
    for (int64_t i = 0; i < config().sizes["L"]; ++i) turned.push_back((i + 1) % kRopeInterval != 0);
    return read_attention_scale();
  }

  Status read_gpt2() {
    TSR_RETURN_IF_ERROR(read_common());
    TSR_ASSIGN_OR_RETURN(config().reals["norm_eps"], file_.real(prefix_ + "attention.layer_norm_epsilon"));
    TSR_ASSIGN_OR_RETURN(const int64_t key_value_heads, layer_integer("attention.head_count_kv", H()));
    TSR_ASSIGN_OR_RETURN(const int64_t head_size, integer("attention.key_length", C() / H()));
    TSR_ASSIGN_OR_RETURN(const int64_t value_size, integer("attention.value_length", head_size));
    if (key_value_heads != H() || head_size != C() / H() || value_size != head_size)
      return unsupported(
          format("{} heads with {} of keys, {} of {} channels and values of {}; a gpt2 model "
                 "has as many of keys, and divides its {} channels among them",
                 H(), key_value_heads, head_size, C(), value_size, C()));
    return check_attention_scale(head_size);
  }

  GgufHyperparameters found;

 private:
  ModelConfig& config() { return found.config; }
  const ModelConfig& config() const { return found.config; }
  int64_t& C() { return config().sizes["C"]; }
  int64_t& H() { return config().sizes["H"]; }
  int64_t& T() { return config().sizes["T"]; }
  int64_t& D() { return config().sizes["D"]; }

  Result<int64_t> integer(std::string_view key, int64_t fallback) const {
    return file_.integer(prefix_ + std::string(key), fallback);
  }
  Result<double> real(std::string_view key, double fallback) const {
    return file_.real(prefix_ + std::string(key), fallback);
  }

  // A number, or an array with one equal number per layer.
  Result<int64_t> layer_integer(std::string_view key, std::optional<int64_t> fallback = {}) const {
    const std::string name = prefix_ + std::string(key);
    if (!file_.has_array(name)) return file_.integer(name, fallback);
    TSR_ASSIGN_OR_RETURN(const std::vector<int64_t> values, file_.integers(name));
    const int64_t layers = config().sizes.at("L");
    if (static_cast<int64_t>(values.size()) != layers)
      return Status(StatusCode::kCorrupt,
                    format("{} has {} values, the model has {} layers", name, values.size(), layers));
    for (size_t i = 1; i < values.size(); ++i)
      if (values[i] != values[0])
        return unsupported(
            format("{} is {} in layer 0 and {} in layer {}; only models whose layers are "
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
    config().sizes["L"] = layers;
    TSR_ASSIGN_OR_RETURN(C(), file_.integer(prefix_ + "embedding_length"));
    TSR_ASSIGN_OR_RETURN(H(), layer_integer("attention.head_count"));
    TSR_ASSIGN_OR_RETURN(config().sizes["F"], layer_integer("feed_forward_length"));
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
      if (!row.family.empty() && config().family.starts_with(row.family)) continue;
      TSR_ASSIGN_OR_RETURN(const double value, real(row.key, row.neutral));
      if (value != row.neutral && value != row.also_neutral)
        return unsupported(format("{}{} is {}; only models without it (or with {}) can be imported", prefix_,
                                  row.key, value, row.neutral));
    }
    return {};
  }

  // A mixture of experts is a llama with several
  // feed-forward networks. No token is dropped.
  Status read_experts() {
    TSR_ASSIGN_OR_RETURN(const int64_t experts, integer("expert_count", 0));
    if (experts == 0) return {};
    constexpr std::string_view kWithExperts[] = {"deepseek2", "gpt-oss", "llama", "qwen2moe", "qwen3moe"};
    if (std::ranges::find(kWithExperts, std::string_view(config().family)) == std::end(kWithExperts))
      return unsupported(format("a {} of {} experts is not supported", config().family, experts));
    TSR_ASSIGN_OR_RETURN(const int64_t used, integer("expert_used_count", 0));
    if (experts < 1 || used < 1 || used > experts)
      return Status(
          StatusCode::kCorrupt,
          format("{}expert_count is {} and {}expert_used_count {}; wanted 1 or more, and no more used "
                 "than there are",
                 prefix_, experts, prefix_, used));
    if (config().family != "deepseek2") {
      TSR_ASSIGN_OR_RETURN(const int64_t shared, integer("expert_shared_count", 0));
      if (shared != 0)
        return unsupported(
            format("{}expert_shared_count is {}; only models without it (or with 0) can be imported", prefix_,
                   shared));
      // GGUF's numbers; the last divides by the sum of the chosen, as every normalised softmax.
      constexpr int64_t kSoftmax = 1, kSoftmaxOfChosen = 3;
      TSR_ASSIGN_OR_RETURN(const int64_t gating, integer("expert_gating_func", kSoftmax));
      if (gating != kSoftmax && gating != 0 && !(gating == kSoftmaxOfChosen && config().family == "gpt-oss"))
        return unsupported(
            format("{}expert_gating_func is {}; only models whose routers end with a softmax ({}) can "
                   "be imported",
                   prefix_, gating, kSoftmax));
    }
    if (config().family == "llama") config().family = "moe";
    config().sizes["E"] = experts;
    config().sizes["K"] = used;
    config().reals["capacity"] = 0;
    int64_t& F = config().sizes["F"];
    TSR_ASSIGN_OR_RETURN(F, integer("expert_feed_forward_length", F));
    return {};
  }

  Status read_norm_and_base() {
    TSR_ASSIGN_OR_RETURN(config().reals["norm_eps"],
                         file_.real(prefix_ + "attention.layer_norm_rms_epsilon"));
    TSR_ASSIGN_OR_RETURN(config().reals["rope_theta"], real("rope.freq_base", 10000.0));
    return {};
  }

  Status read_deepseek_experts() {
    auto& sizes = config().sizes;
    const int64_t layers = sizes["L"];
    if (!sizes.contains("E"))
      return unsupported(format("a {} without experts (expert_count) is not supported", config().family));
    TSR_ASSIGN_OR_RETURN(sizes["FD"], layer_integer("feed_forward_length"));
    TSR_ASSIGN_OR_RETURN(const int64_t dense, integer("leading_dense_block_count", 0));
    if (dense < 0 || dense > layers)
      return Status(StatusCode::kCorrupt,
                    format("{}leading_dense_block_count is {} of {} layers", prefix_, dense, layers));
    for (int64_t i = 0; dense > 0 && i < layers; ++i) config().lists["expert_layers"].push_back(i >= dense);
    TSR_ASSIGN_OR_RETURN(const int64_t shared, integer("expert_shared_count", 0));
    if (shared < 0 || shared > 1024)
      return Status(StatusCode::kCorrupt,
                    format("{}expert_shared_count is {}, wanted 0 to 1024", prefix_, shared));
    if (shared > 0) sizes["FS"] = shared * sizes["F"];
    TSR_ASSIGN_OR_RETURN(const double scale, real("expert_weights_scale", 0));
    if (scale != 0) config().reals["expert_scale"] = scale;
    TSR_ASSIGN_OR_RETURN(config().flags["normalize"], file_.flag(prefix_ + "expert_weights_norm", false));
    constexpr int64_t kSoftmax = 1, kSigmoid = 2;
    TSR_ASSIGN_OR_RETURN(const int64_t gating, integer("expert_gating_func", kSoftmax));
    if (gating != 0 && gating != kSoftmax && gating != kSigmoid)
      return unsupported(format("{}expert_gating_func is {}; known: a softmax ({}) and a sigmoid ({})",
                                prefix_, gating, kSoftmax, kSigmoid));
    if (gating != 0 && file_.has(prefix_ + "expert_gating_func"))
      config().flags["expert_sigmoid"] = gating == kSigmoid;
    TSR_ASSIGN_OR_RETURN(const int64_t groups, integer("expert_group_count", 1));
    TSR_ASSIGN_OR_RETURN(const int64_t groups_used, integer("expert_group_used_count", groups));
    if (groups > 1) {
      sizes["groups"] = groups;
      sizes["groups_used"] = groups_used;
    }
    return {};
  }

  // `half`: rotated pairs are (i, i + R/2).
  Status read_decoder(bool half) {
    TSR_RETURN_IF_ERROR(read_common());
    constexpr std::string_view kFixed[] = {"gpt-oss", "moe", "phi3", "qwen2", "qwen2moe"};
    found.may_have_biases = std::ranges::find(kFixed, std::string_view(config().family)) == std::end(kFixed);
    int64_t& head_size = config().sizes["D"];
    TSR_ASSIGN_OR_RETURN(head_size, integer("attention.key_length", C() / H()));
    TSR_ASSIGN_OR_RETURN(config().sizes["KV"], layer_integer("attention.head_count_kv", H()));
    TSR_RETURN_IF_ERROR(read_norm_and_base());
    TSR_ASSIGN_OR_RETURN(const int64_t value_size, integer("attention.value_length", head_size));
    TSR_ASSIGN_OR_RETURN(const int64_t rotated, integer("rope.dimension_count", head_size));
    if (value_size != head_size)
      return unsupported(format("heads of {} with values of {}; both must be equal", head_size, value_size));
    if (rotated < 2 || rotated > head_size || rotated % 2 != 0)
      return Status(StatusCode::kCorrupt,
                    format("{}rope.dimension_count is {}, wanted an even number up to {}", prefix_, rotated,
                           head_size));
    if (rotated != head_size) config().sizes["R"] = rotated;
    if (half) config().flags["rope_half"] = true;
    return {};
  }

  // As in llama.cpp: linear by default, by the factor or its
  // older name. `truncates`: yarn's ramp has integer bounds.
  Status read_rope_scaling(bool truncates = true) {
    TSR_ASSIGN_OR_RETURN(const std::string type, file_.text(prefix_ + "rope.scaling.type", "linear"));
    TSR_ASSIGN_OR_RETURN(const double older, real("rope.scale_linear", 1.0));
    TSR_ASSIGN_OR_RETURN(const double factor, real("rope.scaling.factor", older));
    const bool yarn = type == "yarn";
    TSR_ASSIGN_OR_RETURN(const double attention_factor, real("rope.scaling.attn_factor", 1));
    TSR_ASSIGN_OR_RETURN(const int64_t original, integer("rope.scaling.original_context_length", T()));
    TSR_ASSIGN_OR_RETURN(const double fast, real("rope.scaling.yarn_beta_fast", 32));
    TSR_ASSIGN_OR_RETURN(const double slow, real("rope.scaling.yarn_beta_slow", 1));
    if (!yarn && attention_factor != 1)
      return unsupported(
          format("{}rope.scaling.attn_factor is {}; only models without it (or with 1) can be imported",
                 prefix_, attention_factor));
    if (type == "none" || (!yarn && (factor == 1.0 || factor == 0.0))) return {};
    if (type != "linear" && !yarn)
      return unsupported(format("rotary positions with {} scaling by {} are not supported", type, factor));
    if (!(factor > 0) || !(original >= 1) || !(fast > 0) || !(slow > 0) || !(attention_factor > 0))
      return Status(
          StatusCode::kCorrupt,
          format("{}rope.scaling has factor {}, original context {}, betas {} and {}, attention factor {}; "
                 "wanted positive ones",
                 prefix_, factor, original, fast, slow, attention_factor));
    const auto rotated = config().sizes.find("R");
    const Rotation rotation{config().reals["rope_theta"],
                            rotated == config().sizes.end() ? config().sizes["D"] : rotated->second};
    if (rotation.rotated > kMostRotated)
      return Status(StatusCode::kCorrupt, format("{} numbers of a head are rotated, wanted at most {}",
                                                 rotation.rotated, kMostRotated));
    // attn_factor multiplies the format's own magnitude.
    std::optional<double> magnitude;
    double mscale = 0;
    if (config().family == "deepseek2") {  // its scores are scaled, not its rotations
      TSR_ASSIGN_OR_RETURN(const double multiplier, real("rope.scaling.yarn_log_multiplier", 0));
      mscale = 10 * multiplier;
      const double scale = (1 + multiplier * std::log(factor)) / std::sqrt(static_cast<double>(D()));
      if (mscale != 0 && factor > 1)
        config().reals["attention_scale"] = scale * (1 + multiplier * std::log(factor));
    }
    if (attention_factor != 1)
      magnitude = attention_factor * (factor <= 1 ? 1.0 : 0.1 * std::log(factor) + 1);
    found.scaling = yarn ? yarn_scaling(rotation, {.factor = factor,
                                                   .original_context = static_cast<double>(original),
                                                   .beta_fast = fast,
                                                   .beta_slow = slow,
                                                   .attention_factor = magnitude,
                                                   .mscale = mscale,
                                                   .mscale_all_dim = mscale,
                                                   .truncates = truncates})
                         : linear_scaling(rotation, factor);
    if (found.scaling->is_neutral()) found.scaling.reset();
    if (found.scaling) {
      found.scaling->describe(config());
      config().sizes["T"] = std::max(config().sizes["T"], found.scaling->context);
    }
    return {};
  }

  // Windows in all layers except each `every`th, or by sliding_window_pattern: another distance, or a flag per layer.
  Status read_windows(int64_t otherwise, int64_t every) {
    TSR_ASSIGN_OR_RETURN(const int64_t window, integer("attention.sliding_window", otherwise));
    if (window <= 0 || window > T()) return {};
    const int64_t layers = config().sizes["L"];
    const std::string key = prefix_ + "attention.sliding_window_pattern";
    std::vector<int64_t> local;
    if (file_.has_array(key)) {
      TSR_ASSIGN_OR_RETURN(local, file_.integers(key));
      if (std::ssize(local) != layers)
        return Status(StatusCode::kCorrupt,
                      format("{} has {} values, the model has {} layers", key, local.size(), layers));
    } else {
      TSR_ASSIGN_OR_RETURN(every, file_.integer(key, every));
      if (every < 0) return Status(StatusCode::kCorrupt, format("{} is {}, wanted 0 or more", key, every));
      for (int64_t i = 0; i < layers; ++i) local.push_back(every == 0 || i % every < every - 1);
    }
    std::vector<int64_t>& windows = config().lists["windows"];
    for (const int64_t each : local) windows.push_back(each != 0 ? window : 0);
    return {};
  }

  // Not in the file: the largest model of a generation scales by channels per head.
  void read_gemma_scale(int64_t layers_of_largest) {
    const auto D = static_cast<double>(config().sizes["D"]),
               C_of_head = static_cast<double>(C()) / static_cast<double>(H());
    if (config().sizes["L"] == layers_of_largest && C_of_head != D)
      config().reals["attention_scale"] = 1 / std::sqrt(C_of_head);
  }

  Status read_attention_scale() {
    TSR_ASSIGN_OR_RETURN(const double scale, real("attention.scale", 0.0));
    const auto D = static_cast<double>(config().sizes["D"]);
    if (scale < 0 || scale == 0.0 || std::abs(scale * std::sqrt(D) - 1) <= 1e-5)
      return scale < 0 ? Status(StatusCode::kCorrupt,
                                format("{}attention.scale is {}, wanted more than 0", prefix_, scale))
                       : Status();
    return check_attention_scale(config().sizes["D"]);
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

namespace {

struct Architecture {
  std::string_view name;  // our name and the file's
  HyperparameterReader::Read read;
};
constexpr Architecture kArchitectures[] = {
    {"deepseek2", &HyperparameterReader::read_deepseek2}, {"gemma", &HyperparameterReader::read_gemma},
    {"gemma2", &HyperparameterReader::read_gemma2},       {"gemma3", &HyperparameterReader::read_gemma3},
    {"gpt-oss", &HyperparameterReader::read_gpt_oss},     {"gpt2", &HyperparameterReader::read_gpt2},
    {"granite", &HyperparameterReader::read_granite},     {"llama", &HyperparameterReader::read_llama},
    {"olmo2", &HyperparameterReader::read_olmo2},         {"phi3", &HyperparameterReader::read_phi3},
    {"qwen2", &HyperparameterReader::read_qwen2},         {"qwen2moe", &HyperparameterReader::read_qwen2moe},
    {"qwen3", &HyperparameterReader::read_qwen3},         {"qwen3moe", &HyperparameterReader::read_qwen3},
    {"smollm3", &HyperparameterReader::read_smollm3},
};

}  // namespace

bool is_known_gguf_architecture(std::string_view name) {
  return std::ranges::find(kArchitectures, name, &Architecture::name) != std::end(kArchitectures);
}

std::string known_gguf_architectures() {
  std::vector<std::string> names;
  for (const Architecture& architecture : kArchitectures) names.emplace_back(architecture.name);
  return join(names, ", ");
}

Result<GgufHyperparameters> read_gguf_hyperparameters(const GgufFile& file, std::string_view name) {
  const auto architecture = std::ranges::find(kArchitectures, name, &Architecture::name);
  TSR_CHECK(architecture != std::end(kArchitectures), "the architecture is known");
  HyperparameterReader reader(file, name);
  TSR_RETURN_IF_ERROR((reader.*architecture->read)());
  return std::move(reader.found);
}

}  // namespace tessera
