// Trainer::save and Trainer::resume. A checkpoint holds whole tensors by name and the trainer's few numbers;
// nothing in it depends on devices or plan.
#include <algorithm>
#include <vector>

#include "capi/engine/adapters.h"
#include "capi/engine/trainer.h"
#include "graph/base/text.h"
#include "graph/transform/adapters.h"
#include "graph/transform/precision.h"
#include "serialize/json.h"

namespace tessera {
namespace {

// Values that must agree for a resumed run to continue the same training.
constexpr std::string_view kMustAgree[] = {"optimizer", "batch", "data"};

Result<int64_t> number(const CheckpointInfo& info, const std::string& key) {
  const auto found = info.values.find(key);
  const std::optional<int64_t> value = found == info.values.end() ? std::nullopt : parse_i64(found->second);
  if (!value || *value < 0)
    return Status(StatusCode::kCorrupt, format("checkpoint: '{}' is '{}', wanted a count", key,
                                               found == info.values.end() ? "" : found->second));
  return *value;
}

// Whether a parameter trained in bf16 is resumed in a model of f32.
bool widens(const TensorType& from, const TensorType& to) {
  return from.dtype == DType::kBF16 && to == TensorType{DType::kF32, from.shape};
}

constexpr std::string_view kRank = "adapter_rank", kAlpha = "adapter_alpha", kOn = "adapter_on";

std::string value_of(const CheckpointInfo& info, std::string_view key) {
  const auto found = info.values.find(std::string(key));
  return found == info.values.end() ? "" : found->second;
}

bool has_adapters(const CheckpointInfo& info) {
  return std::ranges::any_of(info.tensors, [](const auto& tensor) { return is_adapter_name(tensor.first); });
}

// "rank 8 and alpha 16"; files written before they held the rank say less.
std::string adapters_text(const CheckpointInfo& info) {
  const std::string rank = value_of(info, kRank);
  return rank.empty() ? "a rank that it does not say"
                      : format("rank {} and alpha {}", rank, value_of(info, kAlpha));
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

// `parameters_only`: to evaluate, whatever the checkpoint was trained with.
Status check_agreement(const CheckpointInfo& found, const CheckpointInfo& wanted, bool parameters_only) {
  for (const std::string_view key : kMustAgree) {
    if (parameters_only) break;
    const auto theirs = found.values.find(std::string(key)), ours = wanted.values.find(std::string(key));
    if (theirs != found.values.end() && theirs->second == ours->second) continue;
    if (key == "data")  // fingerprints, which mean nothing to people
      return Status(
          StatusCode::kInvalidArgument,
          "the checkpoint was made with other data: wanted the same tokens, and the dataset's options "
          "seq, eval_fraction, shuffle and seed as they were");
    return Status(
        StatusCode::kInvalidArgument,
        format("the checkpoint was made with {} '{}', this trainer has '{}': wanted the same, as option "
               "'{}' says",
               key, theirs == found.values.end() ? "" : theirs->second, ours->second, key));
  }
  TSR_RETURN_IF_ERROR(check_adapters(found, wanted));
  for (const auto& [name, type] : wanted.tensors) {
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
  if (!parameters_only && found.tensors.size() != wanted.tensors.size())
    return Status(StatusCode::kInvalidArgument, format("the checkpoint has {} tensors, this trainer {}",
                                                       found.tensors.size(), wanted.tensors.size()));
  return {};
}

}  // namespace

CheckpointInfo Trainer::checkpoint_info() const {
  CheckpointInfo info;
  info.step = step_;
  info.values["position"] = to_text(position_);
  info.values["skipped"] = to_text(skipped_);
  info.values["batch"] = to_text(settings_.batch);
  info.values["optimizer"] = settings_.step.optimizer.name;
  if (adapters_) {
    info.values[std::string(kRank)] = to_text(adapters_->rank);
    info.values[std::string(kAlpha)] = to_text(adapters_->alpha);
    info.values[std::string(kOn)] = adapters_->on;
  }
  info.values["data"] = dataset_ ? to_text(dataset_->fingerprint()) : "fed";
  // Recorded for people; a resumed run follows its own options.
  info.values["seed"] = to_text(settings_.seed);
  info.values["lr"] = to_text(settings_.rate.peak);
  info.values["steps"] = to_text(settings_.rate.steps);
  info.values["warmup"] = to_text(settings_.rate.warmup);
  info.values["strategy"] = running_->record().entries[0].plan.strategy;
  info.tensors = running_->parameters();
  info.tensors.insert(info.tensors.end(), running_->states().begin(), running_->states().end());
  return info;
}

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
  Json values = Json::object();
  for (const auto& [key, value] : info.values) values[key] = value;
  const Json all = {{"step", info.step}, {"values", values}, {"adapters", adapters}, {"tensors", tensors}};
  return dump(all);
}

Status Trainer::save(const std::string& folder) {
  cancelled_ = false;
  TSR_RETURN_IF_ERROR(check_values());
  return save_checkpoint(
      folder, checkpoint_info(), [this](std::string_view name, std::span<std::byte> out) -> Status {
        if (cancelled_) return Status(StatusCode::kCancelled, "saving cancelled; the folder is as it was");
        return running_->session().read_into(name, out);
      });
}

Status Trainer::check_folder(const std::string& folder) { return check_checkpoint_folder(folder); }

Status Trainer::resume(const std::string& folder) {
  TSR_ASSIGN_OR_RETURN(const CheckpointReader checkpoint, CheckpointReader::open(folder));
  TSR_RETURN_IF_ERROR(check_agreement(checkpoint.info(), checkpoint_info(), settings_.evaluate_only));
  TSR_ASSIGN_OR_RETURN(const int64_t position, number(checkpoint.info(), "position"));
  TSR_ASSIGN_OR_RETURN(const int64_t skipped, number(checkpoint.info(), "skipped"));
  if (running_->failed()) TSR_RETURN_IF_ERROR(running_->restore());
  weights_invalid_ = true;
  for (const auto& [name, type] : checkpoint_info().tensors) {
    // The checkpoint is of a run without loss scaling: the factor starts over.
    if (name.starts_with("loss_scaling.") &&
        std::ranges::none_of(checkpoint.info().tensors,
                             [&](const auto& saved) { return saved.first == name; })) {
      TSR_RETURN_IF_ERROR(running_->session().write(name, HostTensor::zeros(type, nullptr)));
      continue;
    }
    TSR_ASSIGN_OR_RETURN(HostTensor value, checkpoint.read(name));
    if (widens(value.type, type)) value = widened_to_f32(value);
    TSR_RETURN_IF_ERROR(running_->session().write(name, value));
  }
  weights_invalid_ = false;
  step_ = checkpoint.info().step;
  position_ = position;
  skipped_ = skipped;
  return {};
}

}  // namespace tessera
