// Trainer::save and Trainer::resume. A checkpoint holds whole tensors by name
// and the trainer's counters, independent of devices and plan. For unchanged
// parameters it holds only hashes; their values come from the model.
#include <algorithm>
#include <cstdio>
#include <vector>

#include "engine/model/adapters.h"
#include "engine/training/trainer.h"
#include "graph/base/cancellation.h"
#include "graph/base/progress.h"
#include "graph/base/text.h"
#include "graph/transform/adapters.h"
#include "graph/transform/precision.h"
#include "graph/transform/weight_storage.h"
#include "serialize/file_limits.h"
#include "text/json.h"

namespace tessera {
namespace {

// AgreedValue: a value that must be equal for a run to continue the same training.
struct AgreedValue {
  std::string_view key;
  std::string_view otherwise;  // default for checkpoints without the value; "": corrupt
  std::string_view flag;       // of the command
};
constexpr AgreedValue kMustAgree[] = {{"loss", "cross_entropy", "--loss"},
                                      {"optimizer", "", "--optimizer"},
                                      {"batch", "", "--batch"},
                                      {"accumulate", "1", "--accumulate"},
                                      {"data", "", "--data"}};

Result<int64_t> number(const CheckpointInfo& info, const std::string& key) {
  const auto found = info.values.find(key);
  const std::optional<int64_t> value = found == info.values.end() ? std::nullopt : parse_i64(found->second);
  if (!value || *value < 0)
    return Status(StatusCode::kCorrupt, format("checkpoint: '{}' is '{}', wanted a count", key,
                                               found == info.values.end() ? "" : found->second));
  return *value;
}

// Whether a parameter trained in bf16 is resumed in an f32 model.
bool widens(const TensorType& from, const TensorType& to) {
  return from.dtype == DType::kBF16 && to == TensorType{DType::kF32, from.shape};
}

// Marks a checkpoint without optimizer state.
constexpr std::string_view kHolds = "holds", kParametersAlone = "parameters";
const std::string kUnlabelled = "unlabelled";  // absent: 0
constexpr std::string_view kParts = "parts";  // marks trainings in parts (option losses)
constexpr std::string_view kBasePath = "base_path";
constexpr std::string_view kNote = "note.";  // prefix of the caller's notes
constexpr std::string_view kRank = "adapter_rank", kAlpha = "adapter_alpha", kOn = "adapter_on";
// Further options of adapters, AdapterSummary::more, after "adapter_".
constexpr std::string_view kMoreOptions[] = {"ranks", "alphas", "rslora", "dora", "init", "dropout", "also"};

std::string value_of(const CheckpointInfo& info, std::string_view key) {
  const auto found = info.values.find(std::string(key));
  return found == info.values.end() ? "" : found->second;
}

std::string hash_text(uint64_t hash) {
  char digits[17];
  std::snprintf(digits, sizeof digits, "%016llx", static_cast<unsigned long long>(hash));
  return digits;
}

bool has_tensor(const CheckpointInfo& info, std::string_view name) {
  return std::ranges::any_of(info.tensors, [&](const auto& tensor) { return tensor.first == name; });
}

bool has_base(const CheckpointInfo& info, std::string_view name) {
  return std::ranges::any_of(info.base, [&](const BaseTensor& tensor) { return tensor.name == name; });
}

// "the model that was trained, base.gguf"
std::string model_text(const CheckpointInfo& info) {
  const std::string path = value_of(info, kBasePath);
  return "the model that was trained" + (path.empty() ? "" : ", " + path);
}

bool has_adapters(const CheckpointInfo& info) {
  return std::ranges::any_of(info.tensors, [](const auto& it) { return is_adapter_name(it.first); }) ||
         std::ranges::any_of(info.base, [](const BaseTensor& it) { return is_adapter_name(it.name); });
}

// "rank 8 and alpha 16"; files written before they held the rank say less.
std::string adapters_text(const CheckpointInfo& info) {
  const std::string rank = value_of(info, kRank);
  if (rank.empty()) return "a rank that it does not say";
  std::string text = format("rank {} and alpha {}", rank, value_of(info, kAlpha));
  for (const std::string_view option : kMoreOptions)
    if (const std::string value = value_of(info, format("adapter_{}", option)); !value.empty())
      text += format(", {} {}", option, value.substr(0, 200));
  return text;
}

Status check_adapters(const CheckpointInfo& found, const CheckpointInfo& wanted) {
  const bool theirs = has_adapters(found), ours = has_adapters(wanted);
  if (!theirs && !ours) return {};
  if (!ours)
    return Status(StatusCode::kInvalidArgument,
                  format("the checkpoint is of a model with low-rank adapters of {}{}, this model has none: "
                         "wanted the same ones (tsr_model_add_adapters; `train --lora {}`)",
                         adapters_text(found),
                         value_of(found, kOn).empty() ? "" : ", on " + value_of(found, kOn).substr(0, 200),
                         value_of(found, kRank).empty() ? "RANK" : value_of(found, kRank)));
  if (!theirs)
    return Status(StatusCode::kInvalidArgument,
                  format("the checkpoint is of a model without low-rank adapters, this model has some of {}: "
                         "wanted the model without them (`train` without --lora)",
                         adapters_text(wanted)));
  if (value_of(found, kRank).empty() || adapters_text(found) == adapters_text(wanted)) return {};
  return Status(StatusCode::kInvalidArgument,
                format("the checkpoint's adapters have {}, this model's {}: wanted the same",
                       adapters_text(found), adapters_text(wanted)));
}

// Batches of steps in parts have any number of rows, which their caller chooses.
bool is_in_parts(const CheckpointInfo& info) { return !value_of(info, kParts).empty(); }

Status check_settings(const CheckpointInfo& found, const CheckpointInfo& wanted) {
  for (const auto& [key, otherwise, flag] : kMustAgree) {
    const auto value = [&](const CheckpointInfo& info) {
      const auto known = info.values.find(std::string(key));
      return known == info.values.end() ? std::string(otherwise) : known->second;
    };
    const std::string theirs = value(found), ours = value(wanted);
    if (theirs == ours) continue;
    if (key == "batch" && (is_in_parts(found) || is_in_parts(wanted))) continue;
    if (key == "data")  // fingerprints mean nothing to readers
      return Status(
          StatusCode::kInvalidArgument,
          "the checkpoint was made with other data: wanted the same tokens, and the dataset's options "
          "(seq, eval_fraction, shuffle, seed; of rows also packing, mask, template, ...) as they were");
    return Status(
        StatusCode::kInvalidArgument,
        format(
            "the checkpoint was made with {} '{}', this trainer has '{}': wanted the same, option {} '{}' "
            "({} {}), "
            "or a new training of its parameters (tsr_trainer_load_state with optimizer 0, `train --init`)",
            key, theirs.substr(0, 100), ours, key, theirs.substr(0, 100), flag, theirs.substr(0, 100)));
  }
  return {};
}

// `parameters_only`: for evaluation, whatever the training was.
Status check_tensors(const CheckpointInfo& found, const CheckpointInfo& wanted, bool parameters_only) {
  std::vector<std::pair<std::string, TensorType>> all = wanted.tensors;
  for (const BaseTensor& it : wanted.base) all.emplace_back(it.name, it.type);
  for (const auto& [name, type] : all) {
    if (has_base(found, name)) continue;
    const auto same = std::find_if(found.tensors.begin(), found.tensors.end(),
                                   [&](const auto& other) { return other.first == name; });
    if (same == found.tensors.end())
      return Status(
          StatusCode::kInvalidArgument,
          format("the checkpoint has no tensor '{}' {}: it is of another model, or of a run whose options "
                 "optimizer or frozen were others",
                 name, to_text(type)));
    if (same->second == type || (parameters_only && widens(same->second, type))) continue;
    const bool stored_otherwise = widens(same->second, type) || widens(type, same->second);
    return Status(
        StatusCode::kInvalidArgument,
        format("tensor '{}' is {} in the checkpoint, {} in this model{}", name, to_text(same->second),
               to_text(type),
               stored_otherwise ? "; option 'weights' says how parameters are stored, wanted as it was then"
                                : ""));
  }
  if (const size_t count = found.tensors.size() + found.base.size(); !parameters_only && count != all.size())
    return Status(StatusCode::kInvalidArgument,
                  format("the checkpoint has {} tensors, this trainer {}", count, all.size()));
  return {};
}

}  // namespace

CheckpointInfo Trainer::checkpoint_info(bool optimizer) const {
  CheckpointInfo info;
  if (!optimizer) info.values[std::string(kHolds)] = kParametersAlone;
  info.step = step_;
  info.values["position"] = to_text(position_);
  info.values["skipped"] = to_text(skipped_);
  if (unlabelled_ > 0) info.values[kUnlabelled] = to_text(unlabelled_);
  info.values["batch"] = to_text(settings_.batch);
  if (!settings_.losses.empty()) info.values[std::string(kParts)] = "1";
  info.values["optimizer"] = settings_.step.optimizer.name;
  if (adapters_) {
    info.values[std::string(kRank)] = to_text(adapters_->rank);
    info.values[std::string(kAlpha)] = to_text(adapters_->alpha);
    info.values[std::string(kOn)] = adapters_->on;
    for (const auto& [option, value] : adapters_->more()) info.values["adapter_" + option] = value;
  }
  if (settings_.preference) info.values["loss"] = std::string(name_of(settings_.preference->loss));
  if (settings_.accumulate > 1) info.values["accumulate"] = to_text(settings_.accumulate);
  info.values["data"] = dataset_ ? to_text(dataset_->fingerprint()) : "fed";
  // Informative only; a resumed run follows its own options.
  info.values["seed"] = to_text(settings_.seed);
  info.values["lr"] = to_text(settings_.rate.peak);
  info.values["steps"] = to_text(settings_.rate.steps);
  info.values["warmup"] = to_text(settings_.rate.warmup);
  info.values["strategy"] = running_->record().entries[0].plan.strategy;
  for (const auto& [name, type] : running_->parameters()) {
    if (is_left_out(name))
      info.base.push_back({name, type, 0});
    else
      info.tensors.emplace_back(name, type);
  }
  if (!info.base.empty() && !base_.path().empty()) info.values[std::string(kBasePath)] = base_.path();
  for (const auto& state : running_->states())
    if (optimizer && !gradient_states_.contains(state.first)) info.tensors.push_back(state);
  return info;
}

bool holds_parameters_alone(const CheckpointInfo& info) { return value_of(info, kHolds) == kParametersAlone; }

Result<std::string> checkpoint_json(const std::string& folder) {
  TSR_ASSIGN_OR_RETURN(const CheckpointReader checkpoint, CheckpointReader::open(folder));
  const CheckpointInfo& info = checkpoint.info();
  Json tensors = Json::array();
  for (const auto& [name, type] : info.tensors)
    tensors.push_back({{"name", name},
                       {"dtype", to_text(type.dtype)},
                       {"shape", std::vector<int64_t>(type.shape.dims().begin(), type.shape.dims().end())}});
  Json adapters = nullptr;
  const std::optional<int64_t> rank = parse_i64(value_of(info, kRank));
  const std::optional<double> alpha = parse_f64(value_of(info, kAlpha));
  if (rank && alpha) adapters = {{"rank", *rank}, {"alpha", *alpha}, {"on", value_of(info, kOn)}};
  if (rank && alpha)
    for (const std::string_view option : kMoreOptions)
      if (const std::string value = value_of(info, format("adapter_{}", option)); !value.empty())
        adapters[std::string(option)] = value;
  Json values = Json::object();
  Json notes = Json::object();
  std::map<std::string, std::string> texts = info.values;
  Trainer::forget_plan(texts);  // it is long
  for (const auto& [key, value] : texts)
    key.starts_with(kNote) ? notes[key.substr(kNote.size())] = value : values[key] = value;
  Json base = nullptr;
  if (!info.base.empty()) {
    int64_t size = 0;
    for (const BaseTensor& it : info.base) size += bytes(it.type);
    base = {{"path", value_of(info, kBasePath)},
            {"tensors", info.base.size()},
            {"bytes", size},
            {"fingerprint", hash_text(base_fingerprint(info.base))}};
  }
  const Json all = {{"step", info.step}, {"values", values},   {"adapters", adapters},
                    {"base", base},      {"tensors", tensors}, {"notes", notes}};
  return dump(all);
}

Status Trainer::save(const std::string& folder, bool optimizer) {
  cancelled_ = false;
  return lead_status([&]() -> Status {
    TSR_ASSIGN_OR_RETURN(WrittenCheckpoint written, write_here(folder, optimizer));
    return written.commit();
  });
}

Result<CheckpointInfo> Trainer::checkpoint_to_write(bool optimizer) {
  TSR_RETURN_IF_ERROR(check_values());
  TSR_RETURN_IF_ERROR(check_update_made());
  CheckpointInfo info = checkpoint_info(optimizer);
  if (optimizer) record_plan(info);
  std::vector<std::string> left_out;
  for (const BaseTensor& it : info.base) left_out.push_back(it.name);
  TSR_ASSIGN_OR_RETURN(info.base, base_.hashed(left_out, running_->threads(), cancelled_));
  return info;
}

// With several processes the others' snapshots are empty.
Result<CheckpointSnapshot> Trainer::snapshot(const Options& notes) {
  cancelled_ = false;
  CheckpointSnapshot made;
  TSR_RETURN_IF_ERROR(lead_status([&]() -> Status {
    TSR_ASSIGN_OR_RETURN(made, snapshot_here(notes));
    return {};
  }));
  return made;
}

Result<CheckpointSnapshot> Trainer::snapshot_here(const Options& notes) {
  CheckpointSnapshot made;
  TSR_ASSIGN_OR_RETURN(made.info, checkpoint_to_write(true));
  for (const auto& [key, value] : notes) {
    std::string& text = made.info.values[std::string(kNote) + key];
    if (const auto* given = std::get_if<std::string>(&value)) {
      text = *given;
    } else if (const auto* number = std::get_if<int64_t>(&value)) {
      text = to_text(*number);
    } else if (const auto* real = std::get_if<double>(&value)) {
      text = to_text(*real);
    } else {
      return Status(StatusCode::kInvalidArgument,
                    format("note '{}' is a list, wanted a text or a number", key));
    }
  }
  TSR_RETURN_IF_ERROR(check_storable(made.info));
  for (const auto& [name, type] : made.info.tensors) {
    if (cancelled_) return Status(StatusCode::kCancelled, "saving cancelled; the folder is as it was");
    made.values.emplace_back(static_cast<size_t>(bytes(type)));
    TSR_RETURN_IF_ERROR(running_->session().read_into(name, made.values.back()));
  }
  return made;
}

// With several processes the first one has the files; commits of the others do nothing.
Result<WrittenCheckpoint> Trainer::write_checkpoint(const std::string& folder, bool optimizer) {
  WrittenCheckpoint written;
  TSR_RETURN_IF_ERROR(lead_status([&]() -> Status {
    TSR_ASSIGN_OR_RETURN(written, write_here(folder, optimizer));
    return {};
  }));
  return written;
}

Result<WrittenCheckpoint> Trainer::write_here(const std::string& folder, bool optimizer) {
  TSR_ASSIGN_OR_RETURN(const CheckpointInfo info, checkpoint_to_write(optimizer));
  size_t written = 0, all = 1;
  for (const auto& [name, type] : info.tensors) all += static_cast<size_t>(bytes(type));
  return tessera::write_checkpoint(
      folder, info, [&, this](std::string_view name, std::span<std::byte> out) -> Status {
        if (cancelled_) return Status(StatusCode::kCancelled, "saving cancelled; the folder is as it was");
        cancellation_point();
        report_progress(static_cast<double>(written) / static_cast<double>(all));
        written += out.size();
        return running_->session().read_into(name, out);
      });
}

Status Trainer::check_folder(const std::string& folder) { return check_checkpoint_folder(folder); }

Status Trainer::check_base(const CheckpointInfo& found) const {
  for (const BaseTensor& it : found.base) {
    const auto refused = [&](const std::string& why, const std::string& wanted) {
      return Status(StatusCode::kInvalidArgument,
                    format("the checkpoint leaves out parameter '{}' {}, {}: wanted {}", it.name,
                           to_text(it.type), why, wanted));
    };
    const bool is_here =
        std::ranges::any_of(running_->parameters(), [&](const auto& own) { return own.first == it.name; });
    if (!is_here && settings_.evaluate_only) continue;
    if (!is_here) return refused("which this model has not", model_text(found));
    if (!settings_.evaluate_only && !frozen_.contains(it.name))
      return refused("which did not train then and trains here", "option 'frozen' as it was then");
    const HostTensor* given = base_.find(it.name);
    if (given == nullptr) return refused("of which this model has no values", model_text(found));
    if (given->type != it.type)
      return refused(format("which is {} in this model", to_text(given->type)), model_text(found));
  }
  return {};
}

Status Trainer::check_base_contents(const CheckpointInfo& found) {
  std::vector<std::string> names;
  std::vector<const BaseTensor*> wanted;
  for (const BaseTensor& it : found.base) {
    if (base_.find(it.name) == nullptr) continue;  // unused in this evaluation
    names.push_back(it.name);
    wanted.push_back(&it);
  }
  TSR_ASSIGN_OR_RETURN(const std::vector<BaseTensor> own,
                       base_.hashed(names, running_->threads(), cancelled_));
  for (size_t i = 0; i < own.size(); ++i)
    if (own[i] != *wanted[i])
      return Status(
          StatusCode::kInvalidArgument,
          format(
              "the checkpoint is of a training on another base: parameter '{}' {} has other contents in this "
              "model (xxh3 {}, in the checkpoint {}): wanted {}",
              own[i].name, to_text(own[i].type), hash_text(own[i].xxh3), hash_text(wanted[i]->xxh3),
              model_text(found)));
  return {};
}

Status Trainer::check_same_base(const CheckpointInfo& found) {
  TSR_RETURN_IF_ERROR(check_base(found));
  return check_base_contents(found);
}

// Takes the checkpoint's value, or the model's if the checkpoint leaves the parameter out.
Status Trainer::take(const CheckpointReader& checkpoint, std::string_view name, const TensorType& type) {
  const CheckpointInfo& found = checkpoint.info();
  if (has_base(found, name)) {
    if (!base_.is_replaced(name)) return {};
    // Evaluations may store it in another type.
    const HostTensor& given = *base_.find(name);
    HostTensor own = given;
    if (given.type != type) {
      TSR_ASSIGN_OR_RETURN(own, quantize_weight(given, type));
    }
    TSR_RETURN_IF_ERROR(running_->session().write(name, own));
    base_.set_replaced(name, false);
    return {};
  }
  // The checkpoint has no loss scaling; the factor starts over.
  if (name.starts_with("loss_scaling.") && !has_tensor(found, name))
    return running_->session().write(name, HostTensor::zeros(type, nullptr));
  TSR_ASSIGN_OR_RETURN(HostTensor value, checkpoint.read(name));
  if (widens(value.type, type)) value = widened_to_f32(value);
  if (base_.is_own(name, value) && !base_.is_replaced(name)) return {};
  return write_value(name, value);
}

Status Trainer::resume(const std::string& folder) {
  cancelled_ = false;
  TSR_ASSIGN_OR_RETURN(const CheckpointReader checkpoint, CheckpointReader::open(folder));
  const CheckpointInfo& found = checkpoint.info();
  const CheckpointInfo wanted = checkpoint_info(true);
  if (!settings_.evaluate_only && holds_parameters_alone(found))
    return Status(StatusCode::kInvalidArgument,
                  "the checkpoint holds parameters alone (it was saved with optimizer 0), a resumed training "
                  "wants the optimizer's state: load it with tsr_trainer_load_state and optimizer 0");
  if (!settings_.evaluate_only) TSR_RETURN_IF_ERROR(check_settings(found, wanted));
  TSR_RETURN_IF_ERROR(check_adapters(found, wanted));
  TSR_RETURN_IF_ERROR(check_base(found));
  TSR_RETURN_IF_ERROR(check_tensors(found, wanted, settings_.evaluate_only));
  TSR_ASSIGN_OR_RETURN(const int64_t position, number(found, "position"));
  TSR_ASSIGN_OR_RETURN(const int64_t skipped, number(found, "skipped"));
  int64_t unlabelled = 0;
  if (found.values.contains(kUnlabelled)) {
    TSR_ASSIGN_OR_RETURN(unlabelled, number(found, kUnlabelled));
  }
  TSR_RETURN_IF_ERROR(check_base_contents(found));
  const WeightLock::Update update(weight_lock_);
  TSR_RETURN_IF_ERROR(take_plan(found));
  if (running_->failed()) TSR_RETURN_IF_ERROR(running_->restore());
  weights_invalid_ = true;
  for (const auto* tensors : {&running_->parameters(), &running_->states()})
    for (const auto& [name, type] : *tensors)
      if (!gradient_states_.contains(name)) TSR_RETURN_IF_ERROR(take(checkpoint, name, type));
  TSR_RETURN_IF_ERROR(clear_gradients());
  weights_invalid_ = false;
  step_ = found.step;
  model_->set_resumed(folder);
  position_ = position;
  skipped_ = skipped;
  unlabelled_ = unlabelled;
  return {};
}

Status Trainer::load_parameters(const std::string& folder) {
  cancelled_ = false;
  TSR_ASSIGN_OR_RETURN(const CheckpointReader checkpoint, CheckpointReader::open(folder));
  const CheckpointInfo& found = checkpoint.info();
  const CheckpointInfo wanted = checkpoint_info(false);
  TSR_RETURN_IF_ERROR(check_adapters(found, wanted));
  TSR_RETURN_IF_ERROR(check_base(found));
  TSR_RETURN_IF_ERROR(check_tensors(found, wanted, true));
  TSR_RETURN_IF_ERROR(check_base_contents(found));
  const WeightLock::Update update(weight_lock_);
  if (running_->failed()) TSR_RETURN_IF_ERROR(running_->restore());
  weights_invalid_ = true;
  for (const auto& [name, type] : running_->parameters()) TSR_RETURN_IF_ERROR(take(checkpoint, name, type));
  TSR_RETURN_IF_ERROR(running_->session().zero_state());
  TSR_RETURN_IF_ERROR(clear_gradients());
  weights_invalid_ = false;
  step_ = position_ = skipped_ = unlabelled_ = 0;
  return {};
}

}  // namespace tessera
