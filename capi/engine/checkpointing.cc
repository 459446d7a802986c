// Trainer::save and Trainer::resume. A checkpoint holds whole tensors by name and the few numbers that a
// trainer is besides; nothing in it depends on devices or plan.
#include <algorithm>

#include "capi/engine/trainer.h"
#include "graph/base/text.h"
#include "graph/transform/bf16_parameters.h"

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

// A parameter that was trained in bf16, in a model of f32.
bool widens(const TensorType& from, const TensorType& to) {
  return from.dtype == DType::kBF16 && to == TensorType{DType::kF32, from.shape};
}

// `parameters_only`: to evaluate, whatever the checkpoint was trained with.
Status check_agreement(const CheckpointInfo& found, const CheckpointInfo& wanted, bool parameters_only) {
  for (const std::string_view key : kMustAgree) {
    if (parameters_only) break;
    const auto theirs = found.values.find(std::string(key)), ours = wanted.values.find(std::string(key));
    if (theirs != found.values.end() && theirs->second == ours->second) continue;
    if (key == "data")  // fingerprints, which tell nobody anything
      return Status(
          StatusCode::kInvalidArgument,
          "the checkpoint was made with other data: wanted the same tokens, and the dataset's options "
          "seq, eval_fraction, shuffle and seed as they were");
    return Status(StatusCode::kInvalidArgument,
                  format("the checkpoint was made with {} '{}', this trainer has '{}'", key,
                         theirs == found.values.end() ? "" : theirs->second, ours->second));
  }
  for (const auto& [name, type] : wanted.tensors) {
    const auto same = std::find_if(found.tensors.begin(), found.tensors.end(),
                                   [&](const auto& other) { return other.first == name; });
    if (same == found.tensors.end())
      return Status(StatusCode::kInvalidArgument,
                    format("the checkpoint has no tensor '{}' {}", name, to_text(type)));
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
  info.values["data"] = dataset_ ? to_text(dataset_->fingerprint()) : "fed";
  // For people; a resumed run follows its own options.
  info.values["seed"] = to_text(settings_.seed);
  info.values["lr"] = to_text(settings_.rate.peak);
  info.values["steps"] = to_text(settings_.rate.steps);
  info.values["warmup"] = to_text(settings_.rate.warmup);
  info.values["strategy"] = running_->record().entries[0].plan.strategy;
  info.tensors = running_->parameters();
  info.tensors.insert(info.tensors.end(), running_->states().begin(), running_->states().end());
  return info;
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
  torn_ = true;
  for (const auto& [name, type] : checkpoint_info().tensors) {
    // A checkpoint of a run whose loss was not scaled: the factor begins anew.
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
  torn_ = false;
  step_ = checkpoint.info().step;
  position_ = position;
  skipped_ = skipped;
  return {};
}

}  // namespace tessera
