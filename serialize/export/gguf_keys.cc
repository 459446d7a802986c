#include "serialize/export/gguf_keys.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <string_view>

#include "graph/base/text.h"
#include "graph/models/gguf_keys.h"
#include "serialize/export/decoder_facts.h"
#include "serialize/import/gguf_hyperparameters.h"
#include "serialize/import/json_fields.h"
#include "serialize/import/rope_scaling.h"

namespace tessera {
namespace {

Status unsupported(std::string message) { return Status(StatusCode::kUnsupported, std::move(message)); }

// GgufKeyWriter: metadata by an architecture's keys. What it cannot state is found by reading the result again.
class GgufKeyWriter final : public GgufKeys {
 public:
  GgufKeyWriter(const GgufArchitecture& architecture, const ModelConfig& config, const DecoderSizes* m, GgufWriter& out)
      : architecture_(architecture), config_(config), m_(m), out_(out), prefix_(std::string(architecture.name) + ".") {
    keys.architecture = architecture.name;
    keys.rope_half = architecture.rope_half;
    keys.turned = architecture.turned;
  }

  // After the architecture's function.
  Status write_factors(const std::optional<RopeFactors>& factors) {
    if (factors) return write_scaling(*factors);
    const std::vector<float> ones(static_cast<size_t>(m_->scaled_pairs()), 1);
    if (architecture_.factors == FactorTensors::kAlways) add_factors("rope_freqs.weight", ones);
    return {};
  }

  // ---- ForeignKeys
  const ModelConfig& values() const override { return config_; }
  void fail(StatusCode, std::string) override {}
  void size(std::string_view name, std::string_view ours, std::optional<int64_t> otherwise) override {
    out_.u32(key(name), our_size(ours, otherwise.value_or(0)));
  }
  void real(std::string_view name, std::string_view ours, std::optional<double> otherwise, KeyForm form) override {
    const double value = our_real(ours, otherwise.value_or(0));
    if (value != 0) out_.f32(key(name), form == KeyForm::kInverse ? 1 / value : value);
  }
  void flag(std::string_view name, std::string_view ours, bool otherwise) override {
    out_.flag(key(name), our_flag(ours, otherwise));
  }
  void size_or_zero(std::string_view name, std::string_view ours, int64_t) override { out_.u32(key(name), our_size(ours)); }
  size_t choice(std::string_view name, std::initializer_list<std::string_view> texts, size_t index) override {
    out_.text(key(name), texts.begin()[index]);
    return index;
  }

  // ---- GgufKeys
  void sizes() override {
    out_.u32(key("vocab_size"), our_size("V"));
    out_.u32(key("context_length"), our_size("T"));
    out_.u32(key("embedding_length"), our_size("C"));
    out_.u32(key("block_count"), our_size("L") + draft_count());
    if (architecture_.single_halves) return write_halves();
    if (m_ == nullptr)
      out_.u32(key("feed_forward_length"), our_size("F"));
    else
      by_layer("feed_forward_length", m_->ffn_widths, m_->ffn_width(0));
    out_.u32(key("attention.head_count"), our_size("H"));
  }

  void write_halves() {
    std::vector<int32_t> widths;
    for (size_t i = 0; i < static_cast<size_t>(m_->L); ++i) {
      const int64_t width = !m_->has_feed_forward(i) ? 0 : m_->has_experts(i) ? m_->F : m_->ffn_width(i);
      widths.push_back(static_cast<int32_t>(width));
    }
    out_.integers(key("feed_forward_length"), widths);
    out_.u32(key("attention.head_count"), our_size("H"));
  }

  void decoder(const GgufDecoder& keys) override {
    write_heads(m_->head_size(m_->full_layer()));
    if (keys.norm_twice) out_.f32(key("attention.layer_norm_epsilon"), m_->norm_eps);
    if (m_->experts.E == 0) return;
    write_experts();
    if (architecture_.sigmoid_router) out_.u32(key("expert_gating_func"), kSigmoid);
    if (keys.dense_first) write_dense_first();
    if (architecture_.dense_layers) note_dense_layers();
  }

  void whole_heads() override {}

  void rotation(const GgufRotation& keys) override { rotation_ = keys; }
  void query_temperature(std::string_view name) override {
    if (m_->query_beta == 0) return;
    out_.f32(key(name), m_->query_beta);
    if (m_->rope_rows == 0) out_.u32(key("rope.scaling.original_context_length"), m_->query_context);
  }
  void factor_tensors() override {}

  void window() override {
    const int64_t largest = largest_window();
    if (largest == 0 || largest >= m_->T) return;
    out_.u32(key("attention.sliding_window"), largest);
    keys.notes.push_back(format("llama.cpp takes no notice of the window of {} tokens: beyond it results differ", largest));
  }

  void windows(const GgufWindows& keys) override {
    int64_t largest = largest_window();
    // Without windows: the whole context; with a separate rotation: none.
    if (largest == 0 && m_->window_theta == 0) largest = m_->T;
    const int64_t stated = architecture_.bidirectional && largest > 0 ? 2 * (largest - 1) : largest;
    if (largest < m_->T || !keys.is_optional) out_.u32(key("attention.sliding_window"), stated);
    if (!keys.has_pattern) return;
    std::vector<bool> has_window(static_cast<size_t>(m_->L), false);
    for (size_t i = 0; i < m_->windows.size(); ++i) has_window[i] = m_->windows[i] > 0;
    out_.flags(key("attention.sliding_window_pattern"), has_window);
  }
  void window_heads() override {
    for (const char* const name : {"attention.key_length_swa", "attention.value_length_swa", "rope.dimension_count_swa"})
      out_.u32(key(name), m_->head_size(m_->window_layer()));
  }
  void recurrent_by_interval(std::string_view name, int64_t every) override {
    const std::vector<int64_t>& layers = m_->recurrent.layers;
    out_.u32(key(name), every);
    std::vector<bool> is_recurrent;
    for (const int64_t layer : layers) is_recurrent.push_back(layer != 0);
    is_recurrent.insert(is_recurrent.end(), static_cast<size_t>(draft_count()), false);
    out_.flags(key("attention.recurrent_layers"), is_recurrent);
  }
  void rope_sections(std::string_view name) override {
    const auto pairs = static_cast<int32_t>(m_->R / 2), third = (pairs + 2) / 3, left = std::max(0, pairs - 2 * third);
    out_.integers(key(name), std::vector<int32_t>{third, std::min(third, pairs - third), left, 0});
  }
  void states() override {
    const RecurrentSizes& r = m_->recurrent;
    out_.u32(key("ssm.conv_kernel"), r.taps);
    out_.u32(key("ssm.state_size"), r.K);
    out_.u32(key("ssm.group_count"), r.G);
    out_.u32(key("ssm.inner_size"), r.H * r.V);
    out_.u32(key("ssm.time_step_rank"), r.H);
    if (r.kind == Recurrent::kStateSpace && r.H * r.V != 2 * m_->C)
      keys.notes.push_back(format("llama.cpp wants states of twice the channels, {}, this model has {}: it may not open the file", 2 * m_->C, r.H * r.V));
    if (r.kind == Recurrent::kDelta && r.K != r.V)
      keys.notes.push_back(format(
          "llama.cpp takes the width of keys, {}, for that of values, {}, in recurrent layers, and will not open the file", r.K, r.V));
  }
  void draft_blocks(std::string_view name) override {
    if (draft_count() > 0) out_.u32(key(name), draft_count());
  }
  void rotates_if(std::string_view name) override {
    out_.flag(key(name), m_->rope_layers.empty() || std::ranges::find(m_->rope_layers, 1) != m_->rope_layers.end());
  }
  bool has_windows() const override { return largest_window() > 0 && largest_window() < m_->T; }

  void plain_scores() override {}
  void score_scale(std::string_view name) override { out_.f32(key(name), scale_of_scores()); }
  void largest_scores(int64_t) override {}
  void factor(std::string_view name, std::string_view ours, KeyForm form) override { real(name, ours, 1, form); }
  void cap(std::string_view name, std::string_view ours) override { out_.f32(key(name), our_real(ours)); }
  // In llama.cpp layers without a window read keys of the last layer with keys of its own, those with one of the layer before it.
  void shared_keys(std::string_view name) override {
    const int64_t shared = our_size("shared_kv"), own = m_->L - shared;
    out_.u32(key(name), shared);
    const auto has_window = [&](int64_t layer) { return !m_->windows.empty() && m_->windows[static_cast<size_t>(layer)] > 0; };
    std::string note;
    for (int64_t i = own; i < m_->L; ++i) {
      const int64_t from = m_->kv_layers[static_cast<size_t>(i)], theirs = own - (has_window(i) ? 2 : 1);
      if (from == theirs) continue;
      const bool opens = theirs >= 0 && has_window(theirs) == has_window(i);
      note = format("layer {} reads keys and values of layer {}, in llama.cpp those of layer {}: {}", i, from, theirs,
                    opens ? "results differ" : "it will not open the file");
      if (!opens) break;
    }
    if (!note.empty()) keys.notes.push_back(std::move(note));
  }
  void optional_size(std::string_view name, std::string_view ours) override {
    if (const int64_t value = our_size(ours); value > 0) out_.u32(key(name), value);
  }
  void rope_layers(int64_t) override {}
  void dense_modules() override {
    const std::vector<int64_t>& widths = m_->dense.widths;
    if (widths.empty() || widths.size() > 2 || widths.back() != m_->C) return;  // llama.cpp has no others
    for (size_t i = 0; i < widths.size(); ++i) {
      out_.u32(key(format("dense_{}_feat_in", i + 2)), i == 0 ? m_->C : widths[i - 1]);
      out_.u32(key(format("dense_{}_feat_out", i + 2)), widths[i]);
    }
  }
  int64_t stated_size(std::string_view) override { return 0; }

  void latent() override {
    is_latent_ = true;
    write_heads(m_->latent.VD);
    draft_blocks("nextn_predict_layers");
    if (m_->MTP > 0)
      keys.notes.push_back(
          "llama.cpp opens the file and cannot draft with its block: for that it wants keys and values of latent attention in two "
          "matrices");
    write_experts();
    const ExpertSizes& e = m_->experts;
    out_.u32(key("attention.kv_lora_rank"), m_->latent.KA);
    if (std::abs(m_->latent.norm_eps / m_->norm_eps - 1) > 1e-6) {
      out_.f32(std::string(kLatentNormEpsilonKey), m_->latent.norm_eps);
      keys.notes.push_back(format("llama.cpp adds {} in the norms of latent vectors, as in all others, this model {}: results differ",
                                  m_->norm_eps, m_->latent.norm_eps));
    }
    if (m_->latent.QA > 0) out_.u32(key("attention.q_lora_rank"), m_->latent.QA);
    // llama.cpp decides by the number of layers.
    const bool is_lite = m_->L == 26 || m_->L == 27;
    if (is_lite == (m_->latent.QA > 0))
      keys.notes.push_back(format(
          "llama.cpp takes models of {} layers for ones {} a latent vector of queries, and will not open it", m_->L,
          is_lite ? "without" : "with"));
    if (m_->latent.N % 2 != 0)
      keys.notes.push_back(format("llama.cpp wants an even number of numbers that do not rotate in a head, this model has {}: it will not run the file",
                                  m_->latent.N));
    write_dense_first();
    out_.u32(key("expert_shared_count"), e.FS / m_->F);
    out_.f32(key("expert_weights_scale"), e.scale);
    out_.flag(key("expert_weights_norm"), e.normalize);
    out_.u32(key("expert_gating_func"), e.sigmoid ? kSigmoid : kSoftmax);
    if (e.groups <= 1) return;
    out_.u32(key("expert_group_count"), e.groups);
    out_.u32(key("expert_group_used_count"), e.groups_used);
    if (e.group_best == 1)
      keys.notes.push_back("llama.cpp ranks groups of experts by two scores each, this model by one: results differ");
  }

  WrittenKeys keys;

 protected:
  ModelConfig* set_values() override { return nullptr; }

 private:
  static constexpr uint32_t kSoftmax = 1, kSigmoid = 2;  // of expert_gating_func

  std::string key(std::string_view name) const { return prefix_ + std::string(name); }
  // Draft blocks, which block_count counts.
  int64_t draft_count() const { return m_ != nullptr ? m_->MTP : 0; }
  int64_t largest_window() const { return m_->windows.empty() ? 0 : *std::ranges::max_element(m_->windows); }
  double scale_of_scores() const {
    return m_->attention_scale == 0 ? 1 / std::sqrt(static_cast<double>(m_->D)) : m_->attention_scale;
  }
  Status no_word(std::string what) const {
    return unsupported(format("GGUF's {} has no word for {}", architecture_.name, what));
  }

  // A number, or one for each layer.
  void by_layer(std::string_view name, const std::vector<int64_t>& values, int64_t common) {
    if (values.empty()) return out_.u32(key(name), common);
    const std::vector<int32_t> all(values.begin(), values.end());
    out_.integers(key(name), all);
  }

  void write_heads(int64_t value_length) {
    sizes();
    if (architecture_.recurrent_by_heads)
      write_key_heads();
    else
      by_layer("attention.head_count_kv", m_->kv_heads, m_->KV);
    out_.u32(key("attention.key_length"), m_->head_size(m_->full_layer()));
    out_.u32(key("attention.value_length"), value_length);
    out_.f32(key("attention.layer_norm_rms_epsilon"), m_->norm_eps);
    out_.u32(key("rope.dimension_count"), 2 * m_->scaled_pairs());
    out_.f32(key("rope.freq_base"), m_->rope_theta);
  }

  // One number, or 0 for each recurrent layer.
  void write_key_heads() {
    if (!architecture_.recurrent_by_heads) return out_.u32(key("attention.head_count_kv"), m_->KV);
    std::vector<int32_t> heads;
    for (size_t i = 0; i < static_cast<size_t>(m_->L); ++i) heads.push_back(m_->is_recurrent(i) || !m_->has_mixer(i) ? 0 : static_cast<int32_t>(m_->KV));
    out_.integers(key("attention.head_count_kv"), heads);
  }

  void write_experts() {
    out_.u32(key("expert_count"), m_->experts.E);
    out_.u32(key("expert_used_count"), m_->experts.K);
    if (architecture_.name != "llama") out_.u32(key("expert_feed_forward_length"), m_->F);
  }

  void note_dense_layers() {
    for (size_t i = 0; i < static_cast<size_t>(m_->L); ++i) {
      if (!m_->has_feed_forward(i) || m_->has_experts(i)) continue;
      keys.notes.push_back(format("llama.cpp wants experts in all layers of this architecture, layer {} has none: it will not open the file", i));
      return;
    }
  }

  void write_dense_first() {
    const std::vector<int64_t>& layers = m_->experts.layers;
    out_.u32(key("leading_dense_block_count"), std::ranges::find(layers, 1) - layers.begin());
  }

  Status write_scaling(const RopeFactors& factors) {
    const std::span<const float> values = factors.values.as<float>();
    const auto pairs = static_cast<size_t>(m_->scaled_pairs());
    if (architecture_.factors == FactorTensors::kTwo) {
      out_.u32(key("rope.scaling.original_context_length"), m_->rope_switch > 0 ? m_->rope_switch : m_->T);
      out_.f32(key("rope.scaling.attn_factor"), m_->rope_magnitude);
      if (m_->rope_switch > 0)
        keys.notes.push_back(
            "llama.cpp scales rotations by the length of its context, not of the text: below the switch "
            "results differ");
      add_factors("rope_factors_long.weight", values.last(pairs));
      add_factors("rope_factors_short.weight", values.first(pairs));
      return {};
    }
    if (m_->rope_rows == 1 && m_->rope_magnitude == 1 && architecture_.factors != FactorTensors::kAlways &&
        std::ranges::count(values, values[0]) == std::ssize(values)) {
      out_.text(key("rope.scaling.type"), "linear");
      out_.f32(key("rope.scaling.factor"), values[0]);
      return {};
    }
    if (write_yarn(factors)) return {};
    if (architecture_.factors != FactorTensors::kNone && m_->rope_rows == 1 && m_->rope_magnitude == 1) {
      add_factors("rope_freqs.weight", values);
      return {};
    }
    return no_word(m_->rope_rows > 1 ? "rotations that are scaled otherwise in long texts (rope_switch)"
                   : m_->rope_magnitude != 1
                       ? "rotations scaled by these factors and a magnitude (rope_magnitude)"
                       : "rotations scaled by these factors");
  }

  // Whether the model's scaling is yarn, and reproduces its factors there.
  bool write_yarn(const RopeFactors& factors) {
    const Result<Json> words = parse_json(factors.words.empty() ? "{}" : factors.words, "rope_scaling");
    if (!words.ok()) return false;
    JsonFields fields(*words, "rope_scaling");
    if (fields.text("rope_type", "") != "yarn" || fields.flag("truncate", true) != rotation_.truncates) return false;
    YarnScaling yarn;
    yarn.factor = fields.real("factor", 0);
    yarn.original_context = fields.real("original_max_position_embeddings", 0);
    yarn.beta_fast = fields.real("beta_fast", 32);
    yarn.beta_slow = fields.real("beta_slow", 1);
    if (!fields.status().ok() || !(yarn.factor > 0) || !(yarn.original_context >= 1)) return false;
    yarn.truncates = rotation_.truncates;
    const double mscale = fields.real("mscale_all_dim", 0);
    const double log_multiplier = rotation_.log_multiplier && fields.real("mscale", 0) == 1 ? mscale : 0;
    if (log_multiplier != 0) yarn.mscale = 1, yarn.mscale_all_dim = log_multiplier;
    if (is_latent_) {  // a factor of scores instead of rotations
      yarn.mscale = yarn.mscale_all_dim = mscale;
      const double by = 1 + 0.1 * mscale * std::log(yarn.factor);
      const double wanted = by * by / std::sqrt(static_cast<double>(m_->D));
      const double own =
          m_->attention_scale == 0 ? 1 / std::sqrt(static_cast<double>(m_->D)) : m_->attention_scale;
      if (std::abs(own / wanted - 1) > 1e-9) return false;
    }
    const RopeScaling scaling = yarn_scaling({m_->rope_theta, m_->R}, yarn);
    if (!std::ranges::equal(scaling.values().data, factors.values.data)) return false;
    out_.text(key("rope.scaling.type"), "yarn");
    out_.f32(key("rope.scaling.factor"), yarn.factor);
    out_.u32(key("rope.scaling.original_context_length"), static_cast<int64_t>(yarn.original_context));
    const double magnitude = m_->rope_magnitude / scaling.magnitude;  // magnitude in addition to the format's own
    if (std::abs(magnitude - 1) > 1e-7) out_.f32(key("rope.scaling.attn_factor"), magnitude);
    if (is_latent_ && std::abs(magnitude - 1) > 1e-7)
      keys.notes.push_back("llama.cpp scales all scores by the magnitude of rotations, this model those of rotated parts: results differ");
    if (is_latent_ && mscale != 0) out_.f32(key("rope.scaling.yarn_log_multiplier"), 0.1 * mscale);
    if (log_multiplier != 0) out_.f32(key("rope.scaling.yarn_log_multiplier"), log_multiplier);
    if (!rotation_.truncates)
      keys.notes.push_back("llama.cpp rounds the bounds of yarn's ramp, this model does not: results differ");
    if (yarn.beta_fast != 32) out_.f32(key("rope.scaling.yarn_beta_fast"), yarn.beta_fast);
    if (yarn.beta_slow != 1) out_.f32(key("rope.scaling.yarn_beta_slow"), yarn.beta_slow);
    return true;
  }

  void add_factors(std::string name, std::span<const float> values) {
    keys.factors.push_back(source_in_memory(
        std::move(name), HostTensor::copy_of<float>({DType::kF32, {std::ssize(values)}}, values)));
  }

  const GgufArchitecture& architecture_;
  const ModelConfig& config_;
  const DecoderSizes* const m_;  // null for families that decoder.h does not build
  GgufWriter& out_;
  const std::string prefix_;
  GgufRotation rotation_;
  bool is_latent_ = false;
};

// Names the first of the model's tensors that llama.cpp does not read in this architecture; empty: none.
std::string lacking(const GgufArchitecture& architecture, const DecoderSizes& m) {
  const bool has_qkv = architecture.biases != Biases::kNone, has_all = architecture.biases == Biases::kAll;
  if (!has_qkv && m.qkv_bias) return "biases at q, k and v (qkv_bias)";
  if (!has_all && m.o_bias) return "a bias at o (o_bias)";
  if (!has_all && m.mlp_bias) return "biases in the feed-forward half (mlp_bias)";
  if (architecture.bidirectional && m.head) return "a projection onto the vocabulary (head)";
  if (architecture.is_tied && !m.tied && m.head) return "an output projection of its own (tied = 0)";
  return {};
}

// The sizes that a reader gets from the keys; those that it gets from tensors are `m`'s.
Result<DecoderSizes> sizes_read_again(const ModelFamily& family, std::string_view architecture, const DecoderSizes& m,
                                      bool has_scaling, const GgufWriter& keys) {
  TSR_ASSIGN_OR_RETURN(const TensorFile header, keys.finish({}));
  const auto bytes = std::as_bytes(std::span(header.header));
  TSR_ASSIGN_OR_RETURN(const GgufFile file, GgufFile::open(bytes_in_memory(bytes, nullptr)));
  TSR_ASSIGN_OR_RETURN(GgufHyperparameters again, read_gguf_hyperparameters(file, architecture));
  again.config.sizes["V"] = m.V;
  TSR_ASSIGN_OR_RETURN(DecoderSizes sizes, decoder_sizes(again.config, family.decoder));
  sizes.tied = m.tied, sizes.head = m.head, sizes.classes = m.classes, sizes.causal = m.causal;
  sizes.qkv_bias = m.qkv_bias, sizes.o_bias = m.o_bias, sizes.mlp_bias = m.mlp_bias;
  sizes.experts.selection_bias = m.experts.selection_bias;
  sizes.key_values = m.key_values, sizes.layer_scale = m.layer_scale;
  sizes.rope_rows = m.rope_rows, sizes.rope_switch = m.rope_switch, sizes.rope_magnitude = m.rope_magnitude;
  sizes.T = m.T;
  if (!has_scaling && m.latent.KA > 0) sizes.attention_scale = m.attention_scale;
  return sizes;
}

bool is_off(const ModelConfig& config, const char* flag) {
  const auto found = config.flags.find(flag);
  return found != config.flags.end() && !found->second;
}

// The architecture for the model's experts and directions; null: none.
const GgufArchitecture* fitting_architecture(const ExportedConfig& model) {
  const auto& all = model.family->architectures;
  const bool has_experts = model.decoder && model.decoder->experts.E > 0, is_bidirectional = is_off(model.config, "causal");
  for (const GgufArchitecture& each : all)
    if (each.has_experts == has_experts && each.bidirectional == is_bidirectional) return &each;
  return is_bidirectional ? nullptr : &all[0];
}

Status check_form(const ModelConfig& config, const GgufArchitecture* architecture) {
  if (architecture == nullptr)
    return unsupported("GGUF files of decoders have no word for attention in both directions (causal = 0); wanted: a "
                       "Hugging Face folder (format hf)");
  if (config.sizes.contains("classes"))
    return unsupported("GGUF files of decoders have no word for the classes of texts (score.weight); wanted: a Hugging "
                       "Face folder (format hf)");
  return {};
}

}  // namespace

Result<WrittenKeys> write_gguf_keys(const ExportedConfig& model, const std::optional<RopeFactors>& factors,
                                    GgufWriter& out) {
  if (model.family->architectures.empty()) {
    std::vector<std::string> known;
    for (const ModelFamily& each : all_model_families())
      if (!each.architectures.empty() || (each.encoder != nullptr && each.name != "encoder")) known.emplace_back(each.name);
    return unsupported(format("a model of family '{}' cannot be written as a GGUF file; known: {}", model.config.family,
                              join(known, ", ")));
  }
  const GgufArchitecture* const fitting = fitting_architecture(model);
  TSR_RETURN_IF_ERROR(check_form(model.config, fitting));
  const GgufArchitecture& architecture = *fitting;
  TSR_ASSIGN_OR_RETURN(const ModelConfig values, with_defaults(model.config));
  GgufKeyWriter writer(architecture, values, model.decoder ? &*model.decoder : nullptr, out);
  architecture.keys(writer);
  if (model.decoder) {
    std::string missing = lacking(architecture, *model.decoder);
    if (missing.empty()) TSR_RETURN_IF_ERROR(writer.write_factors(factors));
    if (missing.empty()) {
      TSR_ASSIGN_OR_RETURN(DecoderSizes again,
                           sizes_read_again(*model.family, architecture.name, *model.decoder, factors.has_value(), out));
      if (architecture.dense_layers) again.experts.layers = model.decoder->experts.layers;  // by tensors
      constexpr double kOfF32 = 1e-6;  // keys are f32
      missing = first_difference(*model.decoder, again, kOfF32);
    }
    if (!missing.empty()) return unsupported(format("GGUF's {} has no word for {}", architecture.name, missing));
  }
  if (is_off(model.config, "head") && !architecture.bidirectional)
    writer.keys.notes.push_back(
        "the model has no projection onto the vocabulary: readers of GGUF files take the embedding for one; vectors of texts "
        "are the same, and texts drawn from such a file mean nothing");
  return std::move(writer.keys);
}

}  // namespace tessera
