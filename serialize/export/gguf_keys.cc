#include "serialize/export/gguf_keys.h"

#include <algorithm>
#include <cmath>
#include <string_view>

#include "graph/base/text.h"
#include "serialize/import/json_fields.h"
#include "serialize/import/rope_scaling.h"

namespace tessera {
namespace {

Status unsupported(std::string message) { return Status(StatusCode::kUnsupported, std::move(message)); }

enum class Windows : uint8_t {
  kNone,       // no layer has one
  kForOurs,    // a key that llama.cpp ignores: it attends to the whole context
  kAlternate,  // in all layers but each `every`th
};
enum class Factors : uint8_t {
  kKeys,   // by keys alone: linear, yarn
  kFreqs,  // also by tensor rope_freqs, one row
  kTwo,    // by tensors rope_factors_short and _long
};

// Architecture: features of an architecture in llama.cpp.
struct Architecture {
  std::string_view family, name;
  bool rope_half;
  Windows windows = Windows::kNone;
  int64_t every = 0;
  Factors factors = Factors::kKeys;
  bool any_bias = false;          // at q, k, v, o and in the feed-forward, if the tensors exist
  int64_t layers_of_largest = 0;  // number of layers of the model whose queries are scaled by channels per head
  bool softcap = false;           // of scores, always
  bool any_scale = false;         // of scores
  bool always_tied = false;
  bool qkv_bias = false;  // if the tensors exist
  bool normalize = true;  // weights of a token's experts are divided by their sum
  bool truncates = true;  // bounds of yarn's ramp are whole numbers
};
constexpr Architecture kArchitectures[] = {
    {.family = "deepseek2", .name = "deepseek2", .rope_half = false, .any_scale = true},
    {.family = "gemma", .name = "gemma", .rope_half = true, .always_tied = true},
    {.family = "gemma2",
     .name = "gemma2",
     .rope_half = true,
     .windows = Windows::kAlternate,
     .every = 2,
     .layers_of_largest = 46,
     .softcap = true,
     .always_tied = true},
    {.family = "gemma3",
     .name = "gemma3",
     .rope_half = true,
     .windows = Windows::kAlternate,
     .every = 6,
     .layers_of_largest = 62},
    {.family = "gpt-oss",
     .name = "gpt-oss",
     .rope_half = true,
     .windows = Windows::kAlternate,
     .every = 2,
     .any_bias = true,
     .truncates = false},
    {.family = "granite",
     .name = "granite",
     .rope_half = false,
     .factors = Factors::kFreqs,
     .any_bias = true,
     .any_scale = true},
    {.family = "llama",
     .name = "llama",
     .rope_half = false,
     .windows = Windows::kForOurs,
     .factors = Factors::kFreqs,
     .any_bias = true},
    {.family = "moe",
     .name = "llama",
     .rope_half = false,
     .windows = Windows::kForOurs,
     .factors = Factors::kFreqs},
    {.family = "olmo2", .name = "olmo2", .rope_half = true, .windows = Windows::kAlternate, .every = 4},
    {.family = "phi3",
     .name = "phi3",
     .rope_half = true,
     .windows = Windows::kForOurs,
     .factors = Factors::kTwo},
    {.family = "qwen2", .name = "qwen2", .rope_half = true, .qkv_bias = true},
    {.family = "qwen2moe", .name = "qwen2moe", .rope_half = true, .qkv_bias = true, .normalize = false},
    {.family = "qwen3", .name = "qwen3", .rope_half = true},
    {.family = "qwen3moe", .name = "qwen3moe", .rope_half = true},
    {.family = "smollm3", .name = "smollm3", .rope_half = false},
};

class KeyWriter {
 public:
  KeyWriter(const Architecture& architecture, const DecoderSizes& m, GgufWriter& out)
      : a_(architecture), m_(m), out_(out), prefix_(std::string(architecture.name) + ".") {
    keys.architecture = architecture.name;
    keys.rope_half = architecture.rope_half;
  }

  Status run(const std::optional<RopeFactors>& factors) {
    write_sizes();
    TSR_RETURN_IF_ERROR(write_experts());
    if (m_.latent.KA > 0) TSR_RETURN_IF_ERROR(write_latent());
    TSR_RETURN_IF_ERROR(write_windows());
    TSR_RETURN_IF_ERROR(write_variant());
    return factors ? write_scaling(*factors) : Status();
  }

  GgufKeys keys;

 private:
  std::string key(std::string_view name) const { return prefix_ + std::string(name); }
  Status no_word(std::string what) const {
    return unsupported(format("GGUF's {} has no word for {}", a_.name, what));
  }

  void write_sizes() {
    out_.u32(key("vocab_size"), m_.V);
    out_.u32(key("context_length"), m_.T);
    out_.u32(key("embedding_length"), m_.C);
    out_.u32(key("block_count"), m_.L);
    out_.u32(key("feed_forward_length"), m_.experts.FD > 0 ? m_.experts.FD : m_.F);
    out_.u32(key("attention.head_count"), m_.H);
    out_.u32(key("attention.head_count_kv"), m_.KV);
    out_.u32(key("attention.key_length"), m_.D);
    out_.u32(key("attention.value_length"), m_.latent.KA > 0 ? m_.latent.VD : m_.D);
    out_.f32(key("attention.layer_norm_rms_epsilon"), m_.norm_eps);
    out_.u32(key("rope.dimension_count"), m_.R);
    out_.f32(key("rope.freq_base"), m_.rope_theta);
  }

  Status write_experts() {
    const ExpertSizes& e = m_.experts;
    if (e.E == 0) return {};
    out_.u32(key("expert_count"), e.E);
    out_.u32(key("expert_used_count"), e.K);
    if (a_.name != "llama") out_.u32(key("expert_feed_forward_length"), m_.F);
    if (m_.latent.KA > 0) return {};  // write_latent
    if (e.FS > 0) out_.u32(key("expert_shared_feed_forward_length"), e.FS);
    if (!e.layers.empty()) return no_word("layers without experts (expert_layers)");
    if (e.normalize != a_.normalize)
      return no_word(e.normalize ? "weights of experts divided by their sum (normalize)"
                                 : "weights of experts that are not divided by their sum (normalize = 0)");
    constexpr double kLimit = 7;  // of gpt-oss
    if (e.limit > 0 && e.limit != kLimit)
      return no_word(format("gates bounded by {} (gate_limit; it has {})", e.limit, kLimit));
    return {};
  }

  // DeepSeek: heads, leading dense layers, and experts.
  Status write_latent() {
    const ExpertSizes& e = m_.experts;
    out_.u32(key("attention.kv_lora_rank"), m_.latent.KA);
    if (m_.latent.QA > 0) out_.u32(key("attention.q_lora_rank"), m_.latent.QA);
    // llama.cpp decides by the number of layers.
    const bool is_lite = m_.L == 26 || m_.L == 27;
    if (is_lite == (m_.latent.QA > 0))
      keys.notes.push_back(format(
          "llama.cpp takes models of {} layers for ones {} a latent vector of queries, and will not open it",
          m_.L, is_lite ? "without" : "with"));
    if (std::abs(m_.latent.norm_eps / m_.norm_eps - 1) > 1e-6)  // the file stores the latter in f32
      return no_word(format("norms of latent vectors by another epsilon ({})", m_.latent.norm_eps));
    if (m_.rope_half) return no_word("rotations of pairs (i, i + R/2) (rope_half)");
    const auto dense = std::ranges::find(e.layers, 1) - e.layers.begin();
    for (size_t i = static_cast<size_t>(dense); i < e.layers.size(); ++i)
      if (e.layers[i] == 0) return no_word("layers without experts after ones with them (expert_layers)");
    out_.u32(key("leading_dense_block_count"), dense);
    if (e.FS % m_.F != 0)
      return no_word(format("a shared expert of width {} with experts of {} (FS)", e.FS, m_.F));
    out_.u32(key("expert_shared_count"), e.FS / m_.F);
    out_.f32(key("expert_weights_scale"), e.scale);
    out_.flag(key("expert_weights_norm"), e.normalize);
    out_.u32(key("expert_gating_func"), e.sigmoid ? 2 : 1);
    if (e.groups > 1) {
      out_.u32(key("expert_group_count"), e.groups);
      out_.u32(key("expert_group_used_count"), e.groups_used);
      if (e.group_best == 1)
        keys.notes.push_back(
            "llama.cpp ranks groups of experts by two scores each, this model by one: results differ");
    }
    return {};
  }

  int64_t window(int64_t layer) const {
    return m_.windows.empty() ? 0 : m_.windows[static_cast<size_t>(layer)];
  }

  Status write_windows() {
    int64_t largest = 0;
    for (int64_t i = 0; i < m_.L; ++i) largest = std::max(largest, window(i));
    if (a_.windows == Windows::kAlternate) {
      for (int64_t i = 0; largest > 0 && i < m_.L; ++i)
        if (window(i) != (i % a_.every < a_.every - 1 ? largest : 0))
          return no_word(format("a window of {} in layer {}: all layers but each {}th have the same",
                                window(i), i, a_.every));
      // Without windows: the whole context; with a separate rotation: none.
      if (largest == 0 && m_.window_theta == 0) largest = m_.T;
      if (largest >= m_.T && a_.name == "olmo2") return {};
      out_.u32(key("attention.sliding_window"), largest);
      if (a_.name == "olmo2" && m_.window_theta == 0 && m_.rope_rows > 0)
        return no_word("scaled rotations in layers with a window (window_theta)");
      if (m_.window_theta != 0) out_.f32(key("rope.freq_base_swa"), m_.window_theta);
      return {};
    }
    if (largest == 0 || largest >= m_.T) return {};
    if (a_.windows == Windows::kNone) return no_word(format("windows ({} tokens)", largest));
    for (int64_t i = 0; i < m_.L; ++i)
      if (window(i) != largest)
        return no_word(format("a window of {} in layer {} and {} elsewhere", window(i), i, largest));
    out_.u32(key("attention.sliding_window"), largest);
    keys.notes.push_back(
        format("llama.cpp takes no notice of the window of {} tokens: beyond it results differ", largest));
    return {};
  }

  Status write_variant() {
    if (!a_.any_bias && !a_.qkv_bias && m_.qkv_bias) return no_word("biases at q, k and v (qkv_bias)");
    if (!a_.any_bias && m_.o_bias) return no_word("a bias at o (o_bias)");
    if (!a_.any_bias && m_.mlp_bias) return no_word("biases in the feed-forward half (mlp_bias)");
    if (a_.name == "gpt-oss" && !(m_.qkv_bias && m_.o_bias)) return no_word("attention without biases");
    if (a_.always_tied && !m_.tied && m_.head) return no_word("an output projection of its own (tied = 0)");
    if (a_.name == "smollm3")
      for (int64_t i = 0; i < m_.L; ++i) {
        constexpr int64_t kRopeInterval = 4;
        const bool turns = m_.rope_layers.empty() || m_.rope_layers[static_cast<size_t>(i)] != 0;
        if (turns != ((i + 1) % kRopeInterval != 0))
          return no_word(
              format("rope_layers = {} in layer {}: each fourth does not rotate", turns ? 1 : 0, i));
      }
    const auto D = static_cast<double>(m_.D), of_head = static_cast<double>(m_.C) / static_cast<double>(m_.H);
    const double scale = 1 / std::sqrt(m_.L == a_.layers_of_largest ? of_head : D);
    const double own = m_.attention_scale == 0 ? 1 / std::sqrt(D) : m_.attention_scale;
    if (a_.name == "granite") {
      out_.f32(key("attention.scale"), own);
      out_.f32(key("embedding_scale"), m_.embedding_scale);
      out_.f32(key("residual_scale"), m_.residual_scale);
      out_.f32(key("logit_scale"), 1 / m_.logit_scale);
    }
    if (!a_.any_scale && std::abs(own / scale - 1) > 1e-6)
      return no_word(format("scores times {} (attention_scale; it has {})", own, scale));
    if (a_.softcap && (m_.softcap == 0 || m_.logit_softcap == 0))
      return no_word("scores or logits without a cap (softcap, logit_softcap)");
    if (!a_.softcap && m_.softcap != 0) return no_word(format("a cap of scores (softcap = {})", m_.softcap));
    if (a_.softcap) out_.f32(key("attn_logit_softcapping"), m_.softcap);
    if (m_.logit_softcap != 0) out_.f32(key("final_logit_softcapping"), m_.logit_softcap);
    return {};
  }

  Status write_scaling(const RopeFactors& factors) {
    const std::span<const float> values = factors.values.as<float>();
    const auto pairs = static_cast<size_t>(m_.R / 2);
    if (a_.factors == Factors::kTwo) {
      out_.u32(key("rope.scaling.original_context_length"), m_.rope_switch > 0 ? m_.rope_switch : m_.T);
      out_.f32(key("rope.scaling.attn_factor"), m_.rope_magnitude);
      if (m_.rope_switch > 0)
        keys.notes.push_back(
            "llama.cpp scales rotations by the length of its context, not of the text: below the switch "
            "results differ");
      add_factors("rope_factors_long.weight", values.last(pairs));
      add_factors("rope_factors_short.weight", values.first(pairs));
      return {};
    }
    if (m_.rope_rows == 1 && m_.rope_magnitude == 1 &&
        std::ranges::count(values, values[0]) == std::ssize(values)) {
      out_.text(key("rope.scaling.type"), "linear");
      out_.f32(key("rope.scaling.factor"), values[0]);
      return {};
    }
    if (write_yarn(factors)) return {};
    if (a_.factors == Factors::kFreqs && m_.rope_rows == 1 && m_.rope_magnitude == 1) {
      add_factors("rope_freqs.weight", values);
      return {};
    }
    return no_word(m_.rope_rows > 1 ? "rotations that are scaled otherwise in long texts (rope_switch)"
                   : m_.rope_magnitude != 1
                       ? "rotations scaled by these factors and a magnitude (rope_magnitude)"
                       : "rotations scaled by these factors");
  }

  // Whether the model's scaling is yarn, and reproduces its factors there.
  bool write_yarn(const RopeFactors& factors) {
    const Result<Json> words = parse_json(factors.words.empty() ? "{}" : factors.words, "rope_scaling");
    if (!words.ok()) return false;
    JsonFields fields(*words, "rope_scaling");
    if (fields.text("rope_type", "") != "yarn" || fields.flag("truncate", true) != a_.truncates) return false;
    YarnScaling yarn;
    yarn.factor = fields.real("factor", 0);
    yarn.original_context = fields.real("original_max_position_embeddings", 0);
    yarn.beta_fast = fields.real("beta_fast", 32);
    yarn.beta_slow = fields.real("beta_slow", 1);
    if (!fields.status().ok() || !(yarn.factor > 0) || !(yarn.original_context >= 1)) return false;
    yarn.truncates = a_.truncates;
    const double mscale = fields.real("mscale_all_dim", 0);
    if (m_.latent.KA > 0) {  // a factor of scores instead of rotations
      yarn.mscale = yarn.mscale_all_dim = mscale;
      const double by = 1 + 0.1 * mscale * std::log(yarn.factor);
      const double wanted = by * by / std::sqrt(static_cast<double>(m_.D));
      const double own =
          m_.attention_scale == 0 ? 1 / std::sqrt(static_cast<double>(m_.D)) : m_.attention_scale;
      if (std::abs(own / wanted - 1) > 1e-9) return false;
    }
    const RopeScaling scaling = yarn_scaling({m_.rope_theta, m_.R}, yarn);
    if (!std::ranges::equal(scaling.values().data, factors.values.data)) return false;
    out_.text(key("rope.scaling.type"), "yarn");
    out_.f32(key("rope.scaling.factor"), yarn.factor);
    out_.u32(key("rope.scaling.original_context_length"), static_cast<int64_t>(yarn.original_context));
    const double magnitude = m_.rope_magnitude / scaling.magnitude;  // magnitude in addition to the format's own
    if (std::abs(magnitude - 1) > 1e-7) out_.f32(key("rope.scaling.attn_factor"), magnitude);
    if (m_.latent.KA > 0 && mscale != 0) out_.f32(key("rope.scaling.yarn_log_multiplier"), 0.1 * mscale);
    if (!a_.truncates)
      keys.notes.push_back("llama.cpp rounds the bounds of yarn's ramp, this model does not: results differ");
    if (yarn.beta_fast != 32) out_.f32(key("rope.scaling.yarn_beta_fast"), yarn.beta_fast);
    if (yarn.beta_slow != 1) out_.f32(key("rope.scaling.yarn_beta_slow"), yarn.beta_slow);
    return true;
  }

  void add_factors(std::string name, std::span<const float> values) {
    keys.factors.push_back(source_in_memory(
        std::move(name), HostTensor::copy_of<float>({DType::kF32, {std::ssize(values)}}, values)));
  }

  const Architecture& a_;
  const DecoderSizes& m_;
  GgufWriter& out_;
  const std::string prefix_;
};

Result<GgufKeys> write_gpt2(const ModelConfig& config, GgufWriter& out) {
  const auto size = [&](const char* name, int64_t otherwise) {
    const auto found = config.sizes.find(name);
    return found == config.sizes.end() ? otherwise : found->second;
  };
  const auto eps = config.reals.find("norm_eps");
  out.u32("gpt2.vocab_size", size("V", 0));
  out.u32("gpt2.context_length", size("T", 0));
  out.u32("gpt2.embedding_length", size("C", 0));
  out.u32("gpt2.block_count", size("L", 0));
  out.u32("gpt2.feed_forward_length", size("F", 4 * size("C", 0)));
  out.u32("gpt2.attention.head_count", size("H", 0));
  out.f32("gpt2.attention.layer_norm_epsilon", eps == config.reals.end() ? 1e-5 : eps->second);
  GgufKeys keys;
  keys.architecture = "gpt2";
  return keys;
}

bool is_off(const ModelConfig& config, const char* flag) {
  const auto found = config.flags.find(flag);
  return found != config.flags.end() && !found->second;
}

Status check_form(const ModelConfig& config) {
  if (is_off(config, "causal"))
    return unsupported("GGUF files of decoders have no word for attention in both directions (causal = 0); wanted: a "
                       "Hugging Face folder (format hf)");
  if (config.sizes.contains("classes"))
    return unsupported("GGUF files of decoders have no word for the classes of texts (score.weight); wanted: a Hugging "
                       "Face folder (format hf)");
  return {};
}

}  // namespace

Result<GgufKeys> write_gguf_keys(const ExportedConfig& model, const std::optional<RopeFactors>& factors,
                                 GgufWriter& out) {
  const std::string& family = model.config.family;
  TSR_RETURN_IF_ERROR(check_form(model.config));
  constexpr const char* kHeadless =
      "the model has no projection onto the vocabulary: readers of GGUF files take the embedding for one; vectors of texts "
      "are the same, and texts drawn from such a file mean nothing";
  if (family == "gpt2") {
    TSR_ASSIGN_OR_RETURN(GgufKeys keys, write_gpt2(model.config, out));
    if (is_off(model.config, "head")) keys.notes.push_back(kHeadless);
    return keys;
  }
  const auto found = std::ranges::find(kArchitectures, std::string_view(family), &Architecture::family);
  if (found == std::end(kArchitectures) || !model.decoder) {
    std::vector<std::string> known = {"bert", "distilbert", "gpt2", "modernbert", "nomic-bert", "roberta"};
    for (const Architecture& each : kArchitectures) known.emplace_back(each.family);
    return unsupported(format("a model of family '{}' cannot be written as a GGUF file; known: {}", family,
                              join(known, ", ")));
  }
  KeyWriter writer(*found, *model.decoder, out);
  TSR_RETURN_IF_ERROR(writer.run(factors));
  if (!model.decoder->head) writer.keys.notes.push_back(kHeadless);
  return std::move(writer.keys);
}

}  // namespace tessera
