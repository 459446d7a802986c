#include "engine/settings/trainer_settings.h"

#include <algorithm>
#include <set>
#include <string_view>
#include <vector>

#include "graph/base/quote.h"
#include "graph/base/text.h"
#include "serialize/parameter_groups_json.h"

namespace tessera {
namespace {

// Reads a setting of some optimizer; `own` is the chosen one's, null where it has none of that name.
void read_setting(OptionReader& reader, const OptimizerSetting& any, const OptimizerSetting* own,
                  OptimizerOptions& options) {
  const OptimizerSetting& setting = own == nullptr ? any : *own;
  const std::string key(setting.name);
  const bool is_given = reader.has(key);
  double value = 0;
  if (setting.words.empty()) {
    value = is_given ? reader.f64(key, 0, setting.low, setting.high) : reader.f64(key, 0);
  } else {
    const std::string word = reader.choice(key, std::string(setting.words[0]), setting.words);
    value = static_cast<double>(std::ranges::find(setting.words, word) - setting.words.begin());
  }
  if (!is_given) return;
  if (own != nullptr) {
    options.hyper[key] = value;
  } else {
    reader.fail(Status(StatusCode::kInvalidArgument,
                       format("trainer: option '{}' means nothing to optimizer '{}'", key, options.name)));
  }
}

OptimizerOptions read_optimizer(OptionReader& reader) {
  OptimizerOptions options;
  std::vector<std::string_view> names;
  for (const OptimizerDef* it : all_optimizers()) names.push_back(it->name);
  options.name = reader.choice("optimizer", options.name, names);
  const OptimizerDef* optimizer = find_optimizer(options.name);  // null: refused above
  std::set<std::string_view> done;
  for (const OptimizerDef* it : all_optimizers())
    for (const OptimizerSetting& setting : it->settings)
      if (done.insert(setting.name).second)
        read_setting(reader, setting,
                     optimizer == nullptr ? &setting : find_setting(*optimizer, setting.name), options);
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

TrainingOptions read_step(OptionReader& reader) {
  TrainingOptions step;
  step.optimizer = read_optimizer(reader);
  step.clip_norm = reader.f64("clip_norm", 1.0, 0, 1e30);
  step.loss_scaling.initial = reader.f64("loss_scaling", 0, 0, 1e30);
  step.loss_scaling.interval = reader.i64("loss_scaling_interval", step.loss_scaling.interval, 1, 1 << 24);
  return step;
}

// Reads the losses of partial steps.
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
  settings.step.step_settings = !settings.losses.empty();
  if (settings.evaluate_only && !settings.losses.empty())
    reader.fail(
        Status(StatusCode::kInvalidArgument,
               "trainer: option 'losses' is of a training, evaluate_only makes none: wanted one of them"));
  if (settings.batch_segments && settings.losses.empty())
    reader.fail(Status(StatusCode::kInvalidArgument,
                       "trainer: option 'batch_segments' is of steps in parts: wanted option 'losses', too"));
}

// Reads the slots for adapters.
void read_adapter_slots(OptionReader& reader, TrainerSettings& settings) {
  settings.adapters = reader.i64("adapters", 0, 0, 1 << 12);
  const bool has_more = reader.has("adapter_rank") || reader.has("adapter_weights") || reader.has("adapter_dropout");
  settings.adapter_rank = reader.i64("adapter_rank", settings.adapter_rank, 1, 1 << 16);
  settings.adapter_pattern = reader.text("adapter_weights");
  settings.adapter_dropout = reader.flag("adapter_dropout", false);
  const auto refuse = [&](const std::string& message) {
    reader.fail(Status(StatusCode::kInvalidArgument, "trainer: " + message));
  };
  if (settings.adapters == 0) {
    if (has_more)
      refuse("options 'adapter_rank', 'adapter_weights' and 'adapter_dropout' are of adapters side by side: wanted option "
             "'adapters', too");
    return;
  }
  if (settings.losses.empty()) refuse("option 'adapters' is of steps in parts: wanted option 'losses', too");
  const OptimizerDef* optimizer = find_optimizer(settings.step.optimizer.name);
  if (optimizer != nullptr && !optimizer->has_step_settings)
    refuse(format("optimizer '{}' has no settings of single steps, which 'adapters' have of their own: wanted adamw, lion or sgd",
                  optimizer->name));
  if (!settings.trained.empty() || !settings.frozen.empty())
    refuse("options 'trained' and 'frozen' mean nothing with 'adapters', which alone train: wanted them left out");
  if (settings.precision != DType::kF32 || settings.step.fp8_matmuls || settings.bf16_weights)
    refuse("option 'adapters' trains in f32 alone: wanted precision f32 or tf32, and weights model");
  if (settings.step.loss_scaling.initial != 0)
    refuse("option 'loss_scaling' is of one training, and 'adapters' are several: wanted it left out");
}

}  // namespace

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
  // f16 gradients need it: they underflow below 6e-8.
  if (settings.precision == DType::kF16 && !reader.has("loss_scaling"))
    settings.step.loss_scaling.initial = 65536;
  settings.evaluate_only = reader.flag("evaluate_only", false);
  // Weights that are only read may have any storage type of generators.
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
  read_adapter_slots(reader, settings);
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

Result<TrainingOptions> read_training_options(const Options& options) {
  OptionReader reader(options, "training");
  TrainingOptions step = read_step(reader);
  TSR_RETURN_IF_ERROR(reader.finish());
  return step;
}

}  // namespace tessera
