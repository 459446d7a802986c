#include "capi/engine/settings.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "capi/engine/sampling_settings.h"
#include "graph/base/blocks/block_codec.h"
#include "graph/base/quote.h"
#include "graph/base/text.h"
#include "serialize/parameter_groups_json.h"
#include "serialize/plan_pins_json.h"

namespace tessera {
namespace {

OptimizerOptions read_optimizer(OptionReader& reader) {
  OptimizerOptions options;
  options.name = reader.choice("optimizer", "adamw", {"adafactor", "adamw", "adamw8", "lion", "muon", "sgd"});
  const OptimizerDef* optimizer = find_optimizer(options.name);
  const auto refuse = [&](std::string_view key) {
    reader.fail(Status(StatusCode::kInvalidArgument,
                       format("trainer: option '{}' means nothing to optimizer '{}'", key, options.name)));
  };
  const auto hyper = [&](std::string_view key, double low, double high) {
    if (!reader.has(key)) {
      (void)reader.f64(key, 0);
      return;
    }
    const double value = reader.f64(key, 0, low, high);
    if (optimizer == nullptr || optimizer->defaults().contains(std::string(key))) {
      options.hyper[std::string(key)] = value;
    } else {
      refuse(key);
    }
  };
  hyper("beta1", 0, 1);
  hyper("beta2", 0, 1);
  hyper("eps", 0, 1);
  hyper("momentum", 0, 1);
  hyper("decay_rate", 0, 1);
  hyper("clip_threshold", 1e-30, 1e30);
  hyper("weight_decay", 0, 1e6);
  const std::string scale = reader.choice("muon_scale", "match_rms_adamw", {"match_rms_adamw", "original"});
  if (reader.has("muon_scale") && options.name != "muon") {
    refuse("muon_scale");
  } else if (scale == "original") {
    options.hyper["original_scale"] = 1;
  }
  if (const std::string groups = reader.text("groups"); !groups.empty()) {
    Result<std::vector<ParameterGroup>> read = parameter_groups_from_json(groups);
    if (read.ok())
      options.groups = std::move(read).value();
    else
      reader.fail(read.status());
  }
  options.lora_plus_ratio = reader.f64("lora_plus_ratio", 1, 0, 1e6);
  return options;
}

LearningRate read_rate(OptionReader& reader) {
  LearningRate rate;
  rate.steps = reader.i64("steps", rate.steps, 1);
  rate.peak = reader.f64("lr", rate.peak, 0, 1e6);
  rate.warmup = reader.i64("warmup", rate.warmup, 0);
  rate.end_fraction = reader.f64("lr_end", rate.end_fraction, 0, 1);
  const std::string schedule = reader.choice("schedule", "constant", {"constant", "cosine", "linear", "wsd"});
  rate.kind = schedule == "cosine"   ? LearningRate::Kind::kCosine
              : schedule == "linear" ? LearningRate::Kind::kLinear
              : schedule == "wsd"    ? LearningRate::Kind::kWsd
                                     : LearningRate::Kind::kConstant;
  rate.decay_fraction = reader.f64("decay_fraction", rate.decay_fraction, 0, 1);
  if (reader.choice("decay_shape", "linear", {"linear", "sqrt"}) == "sqrt")
    rate.decay_shape = LearningRate::DecayShape::kSqrt;
  for (const std::string_view key : {"decay_fraction", "decay_shape"})
    if (reader.has(key) && schedule != "wsd")
      reader.fail(
          Status(StatusCode::kInvalidArgument,
                 format("trainer: option '{}' means nothing to schedule '{}': wanted wsd", key, schedule)));
  return rate;
}

TrainingOptions read_step(OptionReader& reader) {
  TrainingOptions step;
  step.optimizer = read_optimizer(reader);
  step.clip_norm = reader.f64("clip_norm", 1.0, 0, 1e30);
  step.loss_scaling.initial = reader.f64("loss_scaling", 0, 0, 1e30);
  step.loss_scaling.interval = reader.i64("loss_scaling_interval", step.loss_scaling.interval, 1, 1 << 24);
  return step;
}

// Types in which matrices can be kept: those that values can be converted to.
std::vector<std::string> kept_types() {
  std::vector<std::string> names;
  for (int i = 0; i < kDTypeCount; ++i)
    if (const auto type = static_cast<DType>(i); is_narrow_type(type) && can_encode(type))
      names.push_back(to_text(type));
  return names;
}

// The type in which matrices are kept; none: as the model has them.
std::optional<DType> read_kept_type(OptionReader& reader, std::string_view consumer) {
  const std::string word = reader.word("weights", "model");
  if (word == "model") return std::nullopt;
  const std::vector<std::string> known = kept_types();
  if (std::ranges::find(known, word) != known.end()) return dtype_from_name(word);
  if (word == "int8" || word == "int4") {
    reader.fail(Status(StatusCode::kInvalidArgument,
                       format("{}: option 'weights' is '{}', which block types have replaced: wanted {}",
                              consumer, word, word == "int8" ? "q8_0" : "q4_0")));
  } else {
    reader.fail(
        Status(StatusCode::kInvalidArgument, format("{}: option 'weights' is '{}', wanted one of model, {}",
                                                    consumer, quote(word), join(known, ", "))));
  }
  return std::nullopt;
}

Activations read_activations(OptionReader& reader, const std::string& otherwise) {
  const std::string activations = reader.choice("activations", otherwise, {"auto", "f32", "q8", "bf16"});
  return activations == "f32"    ? Activations::kF32
         : activations == "q8"   ? Activations::kQ8
         : activations == "bf16" ? Activations::kBF16
                                 : Activations::kAuto;
}

// The parts that steps are taken apart into.
void read_losses(OptionReader& reader, TrainerSettings& settings) {
  const std::string names = reader.text("losses");
  settings.batch_segments = reader.flag("batch_segments", false);
  for (size_t begin = 0; begin < names.size();) {
    const size_t end = std::min(names.find(',', begin), names.size());
    const std::string name = names.substr(begin, end - begin);
    begin = end + 1;
    const std::optional<TokenLoss> loss = token_loss_from_name(name);
    if (!loss) {
      std::vector<std::string> known;
      for (const TokenLoss it : all_token_losses()) known.emplace_back(name_of(it));
      reader.fail(Status(
          StatusCode::kInvalidArgument,
          format("trainer: option 'losses' has '{}', wanted some of {}", quote(name), join(known, ", "))));
      return;
    }
    if (std::ranges::find(settings.losses, *loss) == settings.losses.end()) settings.losses.push_back(*loss);
  }
  if (settings.evaluate_only && !settings.losses.empty())
    reader.fail(
        Status(StatusCode::kInvalidArgument,
               "trainer: option 'losses' is of a training, evaluate_only makes none: wanted one of them"));
  if (settings.batch_segments && settings.losses.empty())
    reader.fail(Status(StatusCode::kInvalidArgument,
                       "trainer: option 'batch_segments' is of steps in parts: wanted option 'losses', too"));
}

ScorerSettings::Bos read_bos(OptionReader& reader) {
  const std::string bos = reader.choice("bos", "auto", {"auto", "always", "none"});
  return bos == "auto"     ? ScorerSettings::Bos::kAuto
         : bos == "always" ? ScorerSettings::Bos::kAlways
                           : ScorerSettings::Bos::kNone;
}

}  // namespace

ComputeSettings read_compute(OptionReader& reader) {
  ComputeSettings compute;
  compute.devices = reader.text("devices", compute.devices);
  compute.parallel = reader.text("parallel");
  compute.plan_file = reader.text("plan_file");
  compute.profile = reader.text("profile");
  if (const std::string pins = reader.text("pins"); !pins.empty()) {
    Result<PlanPins> read = plan_pins_from_json(pins);
    if (read.ok())
      compute.pins = std::move(read).value();
    else
      reader.fail(read.status());
  }
  compute.measure = reader.i64("measure", 0, 0, 64);
  compute.tune = reader.flag("tune", false);
  compute.memory_limit = reader.bytes("memory_limit", 0);
  compute.host_memory_limit = reader.bytes("host_memory_limit", 0);
  return compute;
}

InferenceSettings read_inference(OptionReader& reader, std::string_view consumer) {
  InferenceSettings settings;
  const std::string precision = reader.choice("precision", "f32", {"f32", "tf32", "bf16"});
  settings.precision = precision == "bf16" ? DType::kBF16 : DType::kF32;
  settings.tf32_matmuls = precision == "tf32";
  settings.weights = read_kept_type(reader, consumer);
  // Casting every weight in every step would cost more than it saves.
  if (settings.precision == DType::kBF16 && !settings.weights) settings.weights = DType::kBF16;
  settings.activations = read_activations(reader, "auto");
  settings.repack = reader.choice("repack", "auto", {"auto", "off"}) == "auto";
  return settings;
}

Result<TrainerSettings> read_trainer_settings(const Options& options, int64_t dataset_seq) {
  OptionReader reader(options, "trainer");
  TrainerSettings settings;
  settings.compute = read_compute(reader);
  settings.step = read_step(reader);
  settings.batch = reader.i64("batch", settings.batch, 1, 1 << 24);
  settings.seq = reader.i64("seq", dataset_seq, 0, 1 << 24);
  settings.accumulate = reader.i64("accumulate", 1, 1, 1 << 16);
  Result<std::vector<std::pair<std::string, int64_t>>> symbols = parse_symbol_values(reader.text("symbols"));
  if (symbols.ok()) {
    settings.symbols = std::move(symbols).value();
  } else {
    reader.fail(symbols.status());
  }
  settings.rate = read_rate(reader);
  settings.seed = static_cast<uint64_t>(reader.i64("seed", 0));
  const double dropout = reader.f64("dropout", 0, 0, 0.999);
  if (reader.has("dropout")) settings.dropout = dropout;
  const std::string precision = reader.choice("precision", "f32", {"f32", "tf32", "bf16", "f16", "fp8"});
  settings.precision = dtype_from_name(precision).value_or(DType::kF32);
  settings.step.fp8_matmuls = precision == "fp8";
  settings.tf32_matmuls = precision == "tf32";
  // Gradients of f16 need it: they underflow below 6e-8.
  if (settings.precision == DType::kF16 && !reader.has("loss_scaling"))
    settings.step.loss_scaling.initial = 65536;
  settings.evaluate_only = reader.flag("evaluate_only", false);
  // Weights that are only read may be kept in any type that generators know.
  if (settings.evaluate_only) {
    settings.eval_weights = read_kept_type(reader, "trainer");
    settings.eval_activations = read_activations(reader, "f32");
    settings.bf16_weights = settings.eval_weights == DType::kBF16;
    if (settings.bf16_weights) settings.eval_weights.reset();
  } else {
    settings.bf16_weights = reader.choice("weights", "model", {"model", "bf16"}) == "bf16";
  }
  if (settings.bf16_weights && settings.precision == DType::kF16)
    reader.fail(Status(StatusCode::kInvalidArgument,
                       "trainer: option 'weights' is bf16, whose numbers f16 (option 'precision') does not "
                       "hold: wanted precision bf16 or f32"));
  if (settings.bf16_weights && settings.step.fp8_matmuls)
    reader.fail(
        Status(StatusCode::kInvalidArgument,
               "trainer: option 'weights' is bf16, and fp8 (option 'precision') quantizes f32 parameters: "
               "wanted precision bf16 or f32, or weights model"));
  const std::string fused = reader.choice("fused_loss", "auto", {"auto", "on", "off"});
  settings.fused_loss = fused == "on" ? FusedLoss::kOn : fused == "off" ? FusedLoss::kOff : FusedLoss::kAuto;
  settings.trained = reader.text("trained");
  settings.frozen = reader.text("frozen");
  settings.eval_batches = reader.i64("eval_batches", 0, 0);
  read_losses(reader, settings);
  if (settings.accumulate > 1 && !settings.losses.empty())
    reader.fail(
        Status(StatusCode::kInvalidArgument,
               "trainer: options 'accumulate' and 'losses' are of whole steps and of their parts, which are "
               "added up as they are called: wanted one of them"));
  read_preference(reader, settings);
  settings.measure_memory = reader.flag("measure_memory", true);
  settings.compute.trace = reader.flag("trace", false);
  settings.watchdog_s = reader.f64("watchdog", settings.watchdog_s, 0, 1e9);
  settings.offload_folder = reader.text("offload_folder");
  TSR_RETURN_IF_ERROR(reader.finish());
  if (dataset_seq > 0 && settings.seq != dataset_seq)
    return Status(
        StatusCode::kInvalidArgument,
        format(
            "trainer: option 'seq' is {}, the dataset was cut into samples of {}: give the dataset the seq",
            settings.seq, dataset_seq));
  if (settings.seq > 0) settings.symbols.emplace_back("T", settings.seq * settings.answers());
  return settings;
}

Result<GeneratorSettings> read_generator_settings(const Options& options) {
  OptionReader reader(options, "generator");
  GeneratorSettings settings;
  settings.compute = read_compute(reader);
  settings.context = reader.i64("context", 0, kWholeContext, 1 << 24);
  settings.compute.trace = reader.flag("trace", false);
  settings.inference = read_inference(reader, "generator");
  settings.text = read_text(reader, settings.text);
  TSR_RETURN_IF_ERROR(reader.finish());
  return settings;
}

namespace {

constexpr int64_t kMostWindowTokens = 1 << 24;

// Where, and how many tokens of how many texts at once.
template <class Settings>
void read_windows(OptionReader& reader, Settings& settings) {
  settings.compute = read_compute(reader);
  settings.seq = reader.i64("seq", 0, 0, kMostWindowTokens);
  settings.batch = reader.i64("batch", 0, 0, kMostWindowTokens);
}

}  // namespace

Result<EmbedderSettings> read_embedder_settings(const Options& options) {
  using Pooling = EmbedderSettings::Pooling;
  using Output = EmbedderSettings::Output;
  OptionReader reader(options, "embedder");
  EmbedderSettings settings;
  read_windows(reader, settings);
  const std::string pooling = reader.choice("pooling", "auto", {"auto", "mean", "cls", "last"});
  settings.pooling = pooling == "mean"   ? Pooling::kMean
                     : pooling == "cls"  ? Pooling::kCls
                     : pooling == "last" ? Pooling::kLast
                                         : Pooling::kAuto;
  const bool normalize = reader.flag("normalize", false);
  if (reader.has("normalize")) settings.normalize = normalize;
  const std::string output = reader.choice("output", "embedding", {"embedding", "logits", "probabilities"});
  settings.output = output == "logits"          ? Output::kLogits
                    : output == "probabilities" ? Output::kProbabilities
                                                : Output::kEmbedding;
  settings.pairs = reader.flag("pairs", false);
  settings.inference = read_inference(reader, "embedder");
  settings.measure_memory = reader.flag("measure_memory", false);
  TSR_RETURN_IF_ERROR(reader.finish());
  if (settings.output != Output::kEmbedding && (reader.has("pooling") || reader.has("normalize")))
    return Status(
        StatusCode::kInvalidArgument,
        format("embedder: options 'pooling' and 'normalize' are of embeddings, option 'output' is {}",
               output));
  return settings;
}

Result<ImportanceSettings> read_importance_settings(const Options& options) {
  OptionReader reader(options, "imatrix");
  ImportanceSettings settings;
  read_windows(reader, settings);
  settings.bos = read_bos(reader);
  settings.name = reader.text("name");
  TSR_RETURN_IF_ERROR(reader.finish());
  return settings;
}

Result<ScorerSettings> read_scorer_settings(const Options& options) {
  OptionReader reader(options, "scorer");
  ScorerSettings settings;
  read_windows(reader, settings);
  settings.stride = reader.i64("stride", 0, 0, kMostWindowTokens);
  settings.bos = read_bos(reader);
  settings.inference = read_inference(reader, "scorer");
  settings.measure_memory = reader.flag("measure_memory", false);
  TSR_RETURN_IF_ERROR(reader.finish());
  return settings;
}

Result<TextSettings> read_text_settings(const Options& options, const TextSettings& otherwise) {
  OptionReader reader(options, "text");
  TextSettings text = read_text(reader, otherwise);
  TSR_RETURN_IF_ERROR(reader.finish());
  return text;
}

const std::vector<std::string>& text_option_names() {
  static const std::vector<std::string> names = [] {
    const Options none;
    OptionReader reader(none, "text");
    (void)read_text(reader, {});
    return reader.known();
  }();
  return names;
}

Result<int64_t> tokens_at_once(int64_t given, int64_t longest, std::string_view what) {
  constexpr int64_t kMost = 2048;
  if (longest > 0 && given > longest)
    return Status(StatusCode::kInvalidArgument,
                  format("{} is {}, the model's context holds {}{}", what, given, longest, kLongerContext));
  return given > 0 ? given : longest > 0 ? std::min(longest, kMost) : kMost;
}

Status finalize_context(GeneratorSettings& settings, int64_t longest) {
  if (settings.context == kWholeContext)
    settings.context = longest > 0 ? std::min(longest, kMostWholeContext) : 0;
  TSR_ASSIGN_OR_RETURN(settings.context,
                       tokens_at_once(settings.context, longest, "generator: option 'context'"));
  return {};
}

Status finalize_windows(ScorerSettings& settings, int64_t longest, int32_t devices) {
  TSR_ASSIGN_OR_RETURN(settings.seq, tokens_at_once(settings.seq, longest, "scorer: option 'seq'"));
  if (settings.stride == 0) settings.stride = std::max<int64_t>(1, settings.seq / 2);
  if (settings.stride > settings.seq)
    return Status(StatusCode::kInvalidArgument,
                  format("scorer: option 'stride' is {}, a window has {} tokens (option 'seq'): tokens between "
                         "windows would not be scored",
                         settings.stride, settings.seq));
  if (settings.batch == 0) settings.batch = devices;
  return {};
}

Status finalize_texts(EmbedderSettings& settings, int64_t longest, int64_t wanted, int32_t devices) {
  constexpr int64_t kTextsOfDevice = 8;
  TSR_ASSIGN_OR_RETURN(const int64_t tokens, tokens_at_once(settings.seq, longest, "embedder: option 'seq'"));
  settings.seq = settings.seq == 0 && wanted > 0 ? std::min(wanted, tokens) : tokens;
  if (settings.batch == 0) settings.batch = kTextsOfDevice * devices;
  return {};
}

Result<TrainingOptions> read_training_options(const Options& options) {
  OptionReader reader(options, "training");
  TrainingOptions step = read_step(reader);
  TSR_RETURN_IF_ERROR(reader.finish());
  return step;
}

// What is left of the way down from 1 to 0, whose last step is above its end as in other schedules.
double LearningRate::wsd_left(int64_t step) const {
  const int64_t longest = steps - warmup;
  const double share = decay_fraction * static_cast<double>(steps);
  const int64_t down = share < static_cast<double>(longest) ? std::llround(share) : longest;
  const int64_t before = std::min(step, steps) - 1 - (steps - down);  // steps on the way down before this one
  if (before <= 0) return 1;
  const double done = static_cast<double>(before) / static_cast<double>(down);
  return decay_shape == DecayShape::kLinear ? 1 - done : 1 - std::sqrt(done);
}

double LearningRate::at(int64_t step) const {
  if (step <= warmup) return peak * static_cast<double>(step) / static_cast<double>(warmup);
  if (kind == Kind::kConstant || steps <= warmup) return peak;
  if (kind == Kind::kWsd) return peak * (end_fraction + (1 - end_fraction) * wsd_left(step));
  // Step s lies at (s - 1 - warmup) / (steps - warmup) of the way down: the first step is at its beginning
  // and no step is at its end, where a rate of 0 would waste the step.
  const double done =
      static_cast<double>(std::min(step, steps) - 1 - warmup) / static_cast<double>(steps - warmup);
  const double left = kind == Kind::kLinear ? 1 - done : 0.5 * (1 + std::cos(std::numbers::pi * done));
  return peak * (end_fraction + (1 - end_fraction) * left);
}

}  // namespace tessera
