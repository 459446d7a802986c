#include "serialize/import/gguf_hyperparameters.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <utility>

#include "graph/base/quote.h"
#include "graph/base/text.h"
#include "graph/models/gguf_keys.h"
#include "serialize/import/gguf_architectures.h"
#include "serialize/import/gguf_layers.h"
#include "serialize/import/gguf_neutral_keys.h"
#include "serialize/import/gguf_router.h"

namespace tessera {
namespace {

constexpr int64_t kMaxLayers = 1024;

// GgufReader: reads metadata by an architecture's keys. Keeps the first error; after it, values are defaults.
class GgufReader final : public GgufKeys {
 public:
  GgufReader(const GgufFile& file, const ModelFamily& family, const GgufArchitecture& architecture)
      : file_(file), architecture_(architecture), prefix_(std::string(architecture.name) + ".") {
    config().family = family.name;
    found.may_have_biases = architecture.optional_biases;
    found.may_lack_values = architecture.optional_values;
  }

  Status run() {
    architecture_.keys(*this);
    if (architecture_.dense_layers && !architecture_.single_halves) read_layers_with_experts();
    check_neutral_keys();
    return status_;
  }

  // ---- ForeignKeys
  const ModelConfig& values() const override { return found.config; }
  void fail(StatusCode code, std::string message) override {
    if (status_.ok()) status_ = Status(code, std::move(message));
  }
  void size(std::string_view key, std::string_view ours, std::optional<int64_t> otherwise) override {
    config().sizes[std::string(ours)] = integer(key, otherwise);
  }
  void real(std::string_view key, std::string_view ours, std::optional<double> otherwise, KeyForm form) override {
    const double value = number(key, otherwise);
    config().reals[std::string(ours)] = form == KeyForm::kInverse ? 1 / value : value;
  }
  void flag(std::string_view key, std::string_view ours, bool otherwise) override {
    config().flags[std::string(ours)] = take(file_.flag(name_of(key), otherwise), otherwise);
  }
  void size_or_zero(std::string_view key, std::string_view ours, int64_t otherwise) override {
    const int64_t value = integer(key, otherwise);
    if (value < 0) fail(StatusCode::kCorrupt, format("{}{} is {}, wanted 0 or more", prefix_, key, value));
    if (value > 0) config().sizes[std::string(ours)] = value;
  }
  size_t choice(std::string_view key, std::initializer_list<std::string_view> texts, size_t) override {
    const std::string text = take(file_.text(name_of(key), std::string(*texts.begin())), std::string());
    const auto at = std::ranges::find(texts, std::string_view(text));
    if (at != texts.end()) return static_cast<size_t>(at - texts.begin());
    fail(StatusCode::kUnsupported, format("{}{} is '{}'; known: {}", prefix_, key, quote(text, 60),
                                          join(std::vector<std::string>(texts.begin(), texts.end()), ", ")));
    return 0;
  }

  // ---- GgufKeys
  void sizes() override {
    const int64_t layers = integer("block_count", {});
    if (layers < 1 || layers > kMaxLayers)
      fail(layers < 1 ? StatusCode::kCorrupt : StatusCode::kUnsupported,
           format("{}block_count is {}; wanted 1 to {}", prefix_, layers, kMaxLayers));
    config().sizes["L"] = status_.ok() ? layers : 1;
    size("embedding_length", "C", {});
    config().sizes["H"] = layer_integer("attention.head_count", {});
    if (architecture_.single_halves)
      read_halves();
    else
      config().sizes["F"] = layer_integer("feed_forward_length", {}, by_layer_ ? "ffn_widths" : "");
    size("context_length", "T", {});
    if (H() < 1) {
      fail(StatusCode::kCorrupt, prefix_ + "attention.head_count is not positive");
      config().sizes["H"] = 1;
    }
    for (const bool wanted : {true, false}) {
      const char* const key = wanted ? "attention.causal" : "use_parallel_residual";
      const bool value = take(file_.flag(name_of(key), wanted), wanted);
      if (value != wanted && !(wanted && architecture_.bidirectional))
        fail(StatusCode::kUnsupported,
             format("{}{} is {}; only models with {} can be imported", prefix_, key, value, wanted));
    }
    if (architecture_.bidirectional) config().flags["causal"] = config().flags["head"] = false;
    read_experts();
  }

  void decoder(const GgufDecoder& keys) override {
    by_layer_ = keys.by_layer;
    dense_has_width_ = keys.beside_dense || keys.dense_first;
    sizes();
    if (keys.dense_first) read_dense_first();
    size("attention.key_length", "D", C() / H());
    if (architecture_.recurrent_by_heads)
      read_key_heads();
    else
      config().sizes["KV"] = layer_integer("attention.head_count_kv", H(), by_layer_ ? "kv_heads" : "");
    read_norm_and_base(keys.norm_twice);
    const int64_t value_size = integer("attention.value_length", D());
    if (value_size != D())
      fail(StatusCode::kUnsupported, format("heads of {} with values of {}; both must be equal", D(), value_size));
    const int64_t rotated = integer("rope.dimension_count", D());
    if (rotated < 2 || rotated > D() || rotated % 2 != 0)
      fail(StatusCode::kCorrupt,
           format("{}rope.dimension_count is {}, wanted an even number up to {}", prefix_, rotated, D()));
    if (rotated != D()) config().sizes["R"] = rotated;
    if (architecture_.rope_half) config().flags["rope_half"] = true;
  }

  void whole_heads() override {
    const int64_t key_value_heads = layer_integer("attention.head_count_kv", H());
    const int64_t head_size = integer("attention.key_length", C() / H());
    const int64_t value_size = integer("attention.value_length", head_size);
    if (key_value_heads != H() || head_size != C() / H() || value_size != head_size)
      fail(StatusCode::kUnsupported,
           format("{} heads with {} of keys, {} of {} channels and values of {}; a {} model has as many of keys, and divides "
                  "its {} channels among them",
                  H(), key_value_heads, head_size, C(), value_size, architecture_.name, C()));
    check_plain_scores(head_size);
  }

  // As in llama.cpp: linear by default, by the factor or its older name.
  void rotation(const GgufRotation& keys) override {
    const std::string type = take(file_.text(name_of("rope.scaling.type"), "linear"), std::string("linear"));
    const double factor = number("rope.scaling.factor", number("rope.scale_linear", 1.0));
    const bool yarn = type == "yarn";
    const double attention_factor = number("rope.scaling.attn_factor", 1);
    const int64_t original = integer("rope.scaling.original_context_length", T());
    const double fast = number("rope.scaling.yarn_beta_fast", 32), slow = number("rope.scaling.yarn_beta_slow", 1);
    if (!yarn && attention_factor != 1)
      fail(StatusCode::kUnsupported,
           format("{}rope.scaling.attn_factor is {}; only models without it (or with 1) can be imported", prefix_,
                  attention_factor));
    if (type == "none" || (!yarn && (factor == 1.0 || factor == 0.0))) return;
    if (type != "linear" && !yarn)
      fail(StatusCode::kUnsupported,
           format("rotary positions with {} scaling by {} are not supported", quote(type, 60), factor));
    if (!(factor > 0) || !(original >= 1) || !(fast > 0) || !(slow > 0) || !(attention_factor > 0))
      fail(StatusCode::kCorrupt,
           format("{}rope.scaling has factor {}, original context {}, betas {} and {}, attention factor {}; wanted positive "
                  "ones",
                  prefix_, factor, original, fast, slow, attention_factor));
    const Rotation rotation{our_real("rope_theta"), our_size("R", D())};
    if (rotation.rotated > kMostRotated)
      fail(StatusCode::kCorrupt, format("{} numbers of a head are rotated, wanted at most {}", rotation.rotated, kMostRotated));
    if (!status_.ok()) return;
    YarnScaling settings;
    settings.factor = factor;
    settings.original_context = static_cast<double>(original);
    settings.beta_fast = fast;
    settings.beta_slow = slow;
    settings.truncates = keys.truncates;
    if (is_latent_) settings.mscale = settings.mscale_all_dim = read_score_multiplier(factor);
    if (keys.log_multiplier) {
      settings.mscale_all_dim = number("rope.scaling.yarn_log_multiplier", 0);
      settings.mscale = settings.mscale_all_dim != 0 ? 1 : 0;
    }
    // attn_factor multiplies the format's own magnitude.
    if (attention_factor != 1) settings.attention_factor = attention_factor * yarn_scaling(rotation, settings).magnitude;
    found.scaling = yarn ? yarn_scaling(rotation, settings) : linear_scaling(rotation, factor);
    if (found.scaling->is_neutral()) found.scaling.reset();
    if (!found.scaling) return;
    found.scaling->describe(config());
    config().sizes["T"] = std::max(T(), found.scaling->context);
  }

  void query_temperature(std::string_view key) override {
    const double beta = number(key, 0);
    if (beta < 0) fail(StatusCode::kCorrupt, format("{}{} is {}, wanted 0 or more", prefix_, key, beta));
    if (!(beta > 0)) return;
    config().reals["query_beta"] = beta;
    size("rope.scaling.original_context_length", "query_context", T());
  }

  void factor_tensors() override {
    found.original_context = integer("rope.scaling.original_context_length", T());
    found.attention_factor = number("rope.scaling.attn_factor", 1);
    if (found.original_context < 1 || !(found.attention_factor > 0))
      fail(StatusCode::kCorrupt, format("{}rope.scaling has an original context of {} and a factor {}, wanted positive ones",
                                        prefix_, found.original_context, found.attention_factor));
    const std::string type = take(file_.text(name_of("rope.scaling.type"), "none"), std::string("none"));
    if (type != "none" && type != "longrope")
      fail(StatusCode::kUnsupported,
           format("{}rope.scaling.type is '{}'; known: none, longrope", prefix_, quote(type, 60)));
  }

  void window() override {
    const int64_t window = integer("attention.sliding_window", 0);
    if (window > 0 && window < T()) config().sizes["window"] = window;
  }

  // sliding_window_pattern: another distance, or a flag per layer.
  void windows(const GgufWindows& keys) override {
    const int64_t stated = integer("attention.sliding_window", keys.otherwise);
    const int64_t window = architecture_.bidirectional && stated > 0 ? stated / 2 + 1 : stated;
    // One longer than the context still selects the rotation.
    const bool has_effect = window <= T() || values().reals.contains("window_theta");
    if (window <= 0 || !has_effect || !status_.ok()) return;
    const int64_t layers = our_size("L");
    const std::vector<int64_t> local =
        take(read_window_layers(file_, name_of("attention.sliding_window_pattern"), keys.every, layers), std::vector<int64_t>());
    if (std::ranges::count(local, 0) == std::ssize(local)) return;
    std::vector<int64_t>& windows = config().lists["windows"];
    for (const int64_t each : local) windows.push_back(each != 0 ? window : 0);
  }
  void recurrent_by_interval(std::string_view name, int64_t every) override {
    every = integer(name, every);
    if (every < 1) return fail(StatusCode::kCorrupt, format("{}{} is {}, wanted 1 or more", prefix_, name, every));
    config().lists["recurrent"] =
        take(read_recurrent_layers(file_, name_of("attention.recurrent_layers"), every, our_size("L")), std::vector<int64_t>());
  }
  void states() override {
    size("ssm.conv_kernel", "taps", {});
    size("ssm.state_size", "KS", {});
    size("ssm.group_count", "GS", {});
    size("ssm.time_step_rank", "HS", {});
    const int64_t inner = integer("ssm.inner_size", {}), heads = our_size("HS");
    if (heads < 1 || inner < 1 || inner % heads != 0)
      return fail(StatusCode::kCorrupt, format("{}ssm.inner_size is {} and {}ssm.time_step_rank {}, wanted a multiple of it", prefix_,
                                               inner, prefix_, heads));
    config().sizes["VS"] = inner / heads;
    if (architecture_.turned) config().flags["turned"] = true;
  }
  void rope_sections(std::string_view name) override { name_of(name); }
  void draft_blocks(std::string_view name) override {
    const int64_t further = integer(name, 0), layers = our_size("L");
    if (further < 0 || further >= layers)
      return fail(StatusCode::kCorrupt, format("{}{} is {} of {}block_count {}", prefix_, name, further, prefix_, layers));
    config().sizes["L"] = layers - further;
    found.draft_blocks = further;
  }
  void rotates_if(std::string_view name) override {
    if (!take(file_.flag(name_of(name), true), true))
      config().lists["rope_layers"].assign(static_cast<size_t>(our_size("L")), 0);
  }
  void window_heads() override {
    const int64_t full = D(), local = integer("attention.key_length_swa", full);
    for (const char* const key : {"attention.value_length_swa", "rope.dimension_count_swa"})
      if (const int64_t value = integer(key, local); value != local)
        fail(StatusCode::kUnsupported,
             format("{}{} is {} and {}attention.key_length_swa {}; both must be equal", prefix_, key, value, prefix_, local));
    config().sizes["D"] = local;
    if (full == local || !status_.ok()) return;
    const std::vector<int64_t>& windows = config().lists["windows"];
    std::vector<int64_t> sizes(static_cast<size_t>(our_size("L")), full);
    for (size_t i = 0; i < windows.size(); ++i)
      if (windows[i] > 0) sizes[i] = local;
    if (windows.empty()) config().lists.erase("windows");
    config().lists["head_sizes"] = std::move(sizes);
  }
  bool has_windows() const override { return values().lists.contains("windows"); }

  void plain_scores() override { check_plain_scores(D()); }

  void score_scale(std::string_view key) override { factor(key, "attention_scale", KeyForm::kSame); }

  void largest_scores(int64_t layers_of_largest) override {
    const double of_head = static_cast<double>(C()) / static_cast<double>(H());
    if (our_size("L") == layers_of_largest && of_head != static_cast<double>(D()))
      config().reals["attention_scale"] = 1 / std::sqrt(of_head);
  }

  void factor(std::string_view key, std::string_view ours, KeyForm form) override {
    const double value = number(key, 0);
    if (value < 0) fail(StatusCode::kCorrupt, format("{}{} is {}, wanted more than 0", prefix_, key, value));
    if (value > 0) config().reals[std::string(ours)] = form == KeyForm::kInverse ? 1 / value : value;
  }

  void optional_size(std::string_view key, std::string_view ours) override {
    if (const int64_t value = integer(key, 0); value != 0) config().sizes[std::string(ours)] = value;
  }

  void rope_layers(int64_t every) override {
    std::vector<int64_t>& turned = config().lists["rope_layers"];
    for (int64_t i = 0; i < our_size("L"); ++i) turned.push_back((i + 1) % every != 0);
  }

  void dense_modules() override {
    std::vector<int64_t> widths = take(read_dense_widths(file_, prefix_, C()), std::vector<int64_t>());
    if (!widths.empty()) config().lists["dense"] = std::move(widths);
  }
  int64_t stated_size(std::string_view key) override { return layer_integer(key, 0); }

  // Heads are as in the model, or as the reader computes: of the latent vector's width.
  void latent() override {
    is_latent_ = true;
    sizes();
    if (our_size("E", 0) == 0)
      fail(StatusCode::kUnsupported, format("a {} without experts (expert_count) is not supported", architecture_.name));
    draft_blocks("nextn_predict_layers");
    read_norm_and_base();
    // The norms of latent vectors have the epsilon of all others where the file does not say; 1e-6 is the family's own, which f32 rounds.
    const double epsilon = take(file_.real(std::string(kLatentNormEpsilonKey), our_real("norm_eps")), 1.0);
    if (epsilon <= 0) fail(StatusCode::kCorrupt, format("{} is {}, wanted more than 0", kLatentNormEpsilonKey, epsilon));
    if (std::abs(epsilon / 1e-6 - 1) > 1e-6) config().reals["latent_norm_eps"] = epsilon;
    size("attention.kv_lora_rank", "KA", {});
    const int64_t rank = integer("attention.q_lora_rank", 0);
    if (rank != 0) config().sizes["QA"] = rank;
    size("attention.key_length_mla", "D", integer("attention.key_length", 0));
    size("attention.value_length_mla", "VD", integer("attention.value_length", D()));
    size("rope.dimension_count", "R", {});
    const int64_t R = our_size("R");
    if (R < 2 || R % 2 != 0 || D() <= R)
      fail(StatusCode::kCorrupt,
           format("heads of {} numbers of which rope.dimension_count, {}, are rotated; wanted an even number, and others",
                  D(), R));
    config().sizes["N"] = D() - R;
    read_latent_experts();
  }

  GgufHyperparameters found;

 protected:
  ModelConfig* set_values() override { return &found.config; }

 private:
  ModelConfig& config() { return found.config; }
  int64_t C() const { return our_size("C"); }
  int64_t H() const { return our_size("H"); }
  int64_t T() const { return our_size("T"); }
  int64_t D() const { return our_size("D"); }

  std::string name_of(std::string_view key) {
    read_.emplace(key);
    return prefix_ + std::string(key);
  }
  template <class T>
  T take(Result<T> result, T otherwise) {
    if (result.ok()) return *std::move(result);
    if (status_.ok()) status_ = result.status();
    return otherwise;
  }
  int64_t integer(std::string_view key, std::optional<int64_t> otherwise) {
    return take(file_.integer(name_of(key), otherwise), otherwise.value_or(1));
  }
  double number(std::string_view key, std::optional<double> otherwise) {
    return take(file_.real(name_of(key), otherwise), otherwise.value_or(1));
  }

  // A number, or an array with one per layer. Numbers that differ become the list `ours`; empty: they must be equal.
  int64_t layer_integer(std::string_view key, std::optional<int64_t> otherwise, const std::string& ours = {}) {
    const std::string name = name_of(key);
    if (!file_.has_array(name)) return integer(key, otherwise);
    const std::vector<int64_t> values = take(read_layer_numbers(file_, name, our_size("L")), std::vector<int64_t>{1});
    for (size_t i = 1; i < values.size(); ++i)
      if (values[i] != values[0] && !ours.empty())
        config().lists[ours] = values;
      else if (values[i] != values[0])
        fail(StatusCode::kUnsupported,
             format("{} is {} in layer 0 and {} in layer {}; only models whose layers are alike can be imported", name,
                    values[0], values[i], i));
    return values[0];
  }

  // Widths of feed-forward halves, 0 for layers without one.
  void read_halves() {
    const std::string key = name_of("feed_forward_length");
    const int64_t layers = our_size("L");
    if (!architecture_.has_experts) {
      const LayerCounts widths = take(read_layer_counts(file_, key, layers, "a feed-forward half"), LayerCounts());
      config().sizes["F"] = std::max<int64_t>(widths.count, 1);
      for (const int64_t has : widths.layers) config().lists["halves"].push_back(has != 0 ? 2 : 1);
      return;
    }
    config().sizes["F"] = take(read_expert_width(file_, name_of("expert_feed_forward_length"), layers, {}), int64_t{1});
    const FeedForwardLayers widths = take(read_feed_forward_layers(file_, key, layers, our_size("F")), FeedForwardLayers());
    for (const int64_t has : widths.halves) config().lists["halves"].push_back(has != 0 ? 2 : 1);
    config().lists["expert_layers"] = widths.experts;
    if (widths.width > 0) config().sizes["FD"] = widths.width;
  }

  // Layers without experts, by their tensors. After the number of layers is known.
  void read_layers_with_experts() {
    std::vector<int64_t> layers = layers_with_experts(file_, our_size("L"));
    if (std::ranges::find(layers, 0) != layers.end()) config().lists["expert_layers"] = std::move(layers);
  }

  // 0 for recurrent layers, and for feed-forward halves alone.
  void read_key_heads() {
    const LayerCounts heads = take(read_layer_counts(file_, name_of("attention.head_count_kv"), our_size("L"), "heads"), LayerCounts());
    config().sizes["KV"] = heads.count > 0 ? heads.count : H();
    const auto halves = config().lists.find("halves");
    const bool is_list = file_.has_array(name_of("attention.head_count_kv"));
    for (size_t i = 0; i < heads.layers.size() && status_.ok(); ++i) {
      const bool mixes = halves == config().lists.end() || halves->second[i] == 1;
      if (!mixes && is_list && heads.layers[i] != 0)
        fail(StatusCode::kCorrupt,
             format("{}attention.head_count_kv is {} in layer {}, whose feed_forward_length is above 0; wanted 0 for one of them",
                    prefix_, heads.count, i));
      config().lists["recurrent"].push_back(heads.layers[i] == 0 && mixes);
    }
  }

  // A mixture of experts has several feed-forward networks. No token is dropped.
  void read_experts() {
    const int64_t experts = integer("expert_count", 0);
    if (experts == 0) return;
    if (!architecture_.has_experts)
      return fail(StatusCode::kUnsupported, format("a {} of {} experts is not supported", architecture_.name, experts));
    const int64_t used = integer("expert_used_count", 0);
    if (experts < 1 || used < 1 || used > experts)
      fail(StatusCode::kCorrupt,
           format("{}expert_count is {} and {}expert_used_count {}; wanted 1 or more, and no more used than there are",
                  prefix_, experts, prefix_, used));
    if (!is_latent_)
      if (Status status = check_router(file_, architecture_); !status.ok()) fail(status.code(), std::string(status.message()));
    config().sizes["E"] = experts;
    config().sizes["K"] = used;
    config().reals["capacity"] = 0;
    if (is_latent_ || dense_has_width_ || (architecture_.dense_layers && !architecture_.single_halves))
      config().sizes["FD"] = our_size("F");
    config().sizes["F"] = take(read_expert_width(file_, name_of("expert_feed_forward_length"), our_size("L"), our_size("F")), int64_t{1});
  }

  // Layers before leading_dense_block_count have a dense MLP in place of experts.
  void read_dense_first() {
    const std::string name = name_of("leading_dense_block_count");
    std::vector<int64_t> layers = take(read_layers_after_dense(file_, name, our_size("L")), std::vector<int64_t>());
    if (!layers.empty()) config().lists["expert_layers"] = std::move(layers);
  }

  void read_norm_and_base(bool norm_twice = false) {
    constexpr std::string_view kNorm = "attention.layer_norm_rms_epsilon", kNormAgain = "attention.layer_norm_epsilon";
    const bool has_other = norm_twice && file_.has(name_of(kNormAgain));
    real(has_other && !file_.has(name_of(kNorm)) ? kNormAgain : kNorm, "norm_eps", {}, KeyForm::kSame);
    if (has_other) {
      const double again = take(file_.real(name_of(kNormAgain)), our_real("norm_eps"));
      if (again != our_real("norm_eps"))
        fail(StatusCode::kCorrupt, format("{}{} is {}, but {}{} is {}; wanted the same number", prefix_, kNormAgain, again, prefix_, kNorm,
                                          our_real("norm_eps")));
    }
    real("rope.freq_base", "rope_theta", 10000.0, KeyForm::kSame);
  }

  void read_latent_experts() {
    auto& sizes = config().sizes;
    read_dense_first();
    const int64_t shared = integer("expert_shared_count", 0);
    if (shared < 0 || shared > 1024)
      fail(StatusCode::kCorrupt, format("{}expert_shared_count is {}, wanted 0 to 1024", prefix_, shared));
    if (shared > 0) sizes["FS"] = shared * sizes["F"];
    factor("expert_weights_scale", "expert_scale", KeyForm::kSame);
    flag("expert_weights_norm", "normalize", false);
    constexpr int64_t kSoftmax = 1, kSigmoid = 2;
    const int64_t gating = integer("expert_gating_func", kSoftmax);
    if (gating != 0 && gating != kSoftmax && gating != kSigmoid)
      fail(StatusCode::kUnsupported, format("{}expert_gating_func is {}; known: a softmax ({}) and a sigmoid ({})", prefix_,
                                            gating, kSoftmax, kSigmoid));
    if (gating != 0 && file_.has(prefix_ + "expert_gating_func")) config().flags["expert_sigmoid"] = gating == kSigmoid;
    const int64_t groups = integer("expert_group_count", 1), groups_used = integer("expert_group_used_count", groups);
    if (groups <= 1) return;
    sizes["groups"] = groups;
    sizes["groups_used"] = groups_used;
  }

  // The scores of latent attention are scaled, not its rotations. Returns mscale_all_dim.
  double read_score_multiplier(double factor) {
    const double multiplier = number("rope.scaling.yarn_log_multiplier", 0);
    const double scale = 1 + multiplier * std::log(factor);
    if (multiplier != 0 && factor > 1)
      config().reals["attention_scale"] = scale * scale / std::sqrt(static_cast<double>(D()));
    return 10 * multiplier;
  }

  void check_plain_scores(int64_t head_size) {
    const double scale = number("attention.scale", 0.0);
    if (scale == 0.0 || std::abs(scale * std::sqrt(static_cast<double>(head_size)) - 1) <= 1e-5) return;
    fail(scale < 0 ? StatusCode::kCorrupt : StatusCode::kUnsupported,
         scale < 0 ? format("{}attention.scale is {}, wanted more than 0", prefix_, scale)
                   : format("{}attention.scale is {}, wanted one over the root of the head size {}", prefix_, scale,
                            head_size));
  }

  void check_neutral_keys() {
    for (const NeutralKey& row : kNeutralKeys) {
      if (read_.contains(row.key)) continue;
      const double value = number(row.key, row.neutral);
      if (value != row.neutral && value != row.also_neutral)
        fail(StatusCode::kUnsupported, format("{}{} is {}; only models without it (or with {}) can be imported", prefix_,
                                              row.key, value, row.neutral));
    }
  }

  const GgufFile& file_;
  const GgufArchitecture& architecture_;
  const std::string prefix_;
  std::set<std::string, std::less<>> read_;  // keys
  bool is_latent_ = false, by_layer_ = false, dense_has_width_ = false;
  Status status_;
};

}  // namespace

Result<GgufHyperparameters> read_gguf_hyperparameters(const GgufFile& file, std::string_view name) {
  TSR_ASSIGN_OR_RETURN(const int64_t experts, file.integer(std::string(name) + ".expert_count", 0));
  const KnownArchitecture architecture = find_gguf_architecture(name, experts != 0);
  TSR_CHECK(architecture.family != nullptr, "the architecture is known");
  GgufReader reader(file, *architecture.family, *architecture.described);
  TSR_RETURN_IF_ERROR(reader.run());
  return std::move(reader.found);
}

}  // namespace tessera
