// Partial steps: Trainer::forward, forward_backward, backward and optimizer_step.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <utility>

#include "engine/model/initialize.h"
#include "engine/training/trainer.h"
#include "graph/base/status_codes.h"
#include "graph/base/text.h"
#include "graph/transform/adapter_slots.h"

namespace tessera {

namespace {

Status check_finite(std::string_view input, float value, int64_t at, int64_t seq) {
  if (std::isfinite(value)) return {};
  return Status(StatusCode::kInvalidArgument,
                format("the batch's {} has {} in row {}, token {}: wanted a finite number", input, double{value},
                       at / seq, at % seq));
}

}  // namespace

void Trainer::find_gradient_states() {
  for (const PlannedEntry& entry : running_->record().entries)
    if (entry.name == kUpdateEntry)
      for (const Gradient& gradient : entry.graph->gradients())
        gradient_states_.insert(entry.graph->tensor(gradient.gradient).name);
}

Status Trainer::check_parts(std::string_view entry) const {
  TSR_RETURN_IF_ERROR(check_values());
  const bool is_whole = settings_.losses.empty() && entry == kUpdateEntry;  // it accumulates by itself
  if (running_->has_entry(entry) && !is_whole) return {};
  std::vector<std::string> names;
  for (const TokenLoss loss : settings_.losses) names.emplace_back(name_of(loss));
  return Status(StatusCode::kFailedPrecondition,
                format("this trainer was made for {}: wanted option losses with all that it is to compute",
                       names.empty() ? "whole steps" : format("the losses {}", join(names, ", "))));
}

Status Trainer::check_update_made() const {
  if (accumulated_ == 0) return {};
  return Status(StatusCode::kFailedPrecondition,
                format("gradients of {} batches wait for an update, and checkpoints hold none: "
                       "tsr_trainer_optimizer_step comes first",
                       accumulated_));
}

Status Trainer::clear_gradients() {
  for (const auto& [name, type] : running_->states())
    if (gradient_states_.contains(name))
      TSR_RETURN_IF_ERROR(running_->session().write(name, HostTensor::zeros(type, nullptr)));
  accumulated_ = accumulated_labels_ = 0;
  accumulated_loss_ = 0;
  return {};
}

// Checks the sizes of a row.
Status Trainer::check_row(const TokenBatch& batch) const {
  if (batch.seq < 1 || batch.seq > settings_.seq)
    return Status(StatusCode::kInvalidArgument,
                  format("the batch's rows have {} tokens, wanted 1 to {} (option seq)", batch.seq, settings_.seq));
  if (batch.tokens == nullptr || batch.labels == nullptr)
    return Status(StatusCode::kInvalidArgument,
                  format("the batch has no {}", batch.tokens == nullptr ? "tokens" : "labels"));
  const bool takes_segments = std::ranges::any_of(
      settings_.losses, [&](TokenLoss loss) { return running_->has_input(accumulation_entry(loss), "segments"); });
  if (batch.segments != nullptr && !takes_segments)
    return Status(StatusCode::kInvalidArgument,
                  "the batch has segments, and this trainer takes one document a row: wanted option "
                  "batch_segments 1 of a model with attention");
  return {};
}

Status Trainer::check_batch(const TokenBatch& batch, std::span<const float> gradients) const {
  constexpr int64_t kMostRows = 1 << 20;
  if (batch.rows < 1 || batch.rows > kMostRows)
    return Status(StatusCode::kInvalidArgument, format("the batch has {} rows, wanted 1 to {}", batch.rows, kMostRows));
  TSR_RETURN_IF_ERROR(check_row(batch));
  for (const auto& [input, from] : {std::pair("tokens", batch.tokens), {"labels", batch.labels},
                                    {"positions", batch.positions}, {"segments", batch.segments}})
    for (const IndexInput& index : index_inputs_)
      if (from != nullptr && index.name == input)
        TSR_RETURN_IF_ERROR(check_rows(index, HostTensor{{DType::kI32, Shape{batch.rows, batch.seq}},
                                                         std::as_bytes(std::span(from, elements(batch))), nullptr}));
  const auto part = [&](const float* values) {
    return values == nullptr ? std::span<const float>() : std::span(values, elements(batch));
  };
  for (const auto& [input, values] : {std::pair("weights", part(batch.weights)),
                                      {"sampler_logprobs", part(batch.sampler_logprobs)},
                                      {"advantages", part(batch.advantages)},
                                      {"gradients", gradients}})
    for (size_t i = 0; i < values.size(); ++i)
      if (batch.labels[i] >= 0) TSR_RETURN_IF_ERROR(check_finite(input, values[i], static_cast<int64_t>(i), batch.seq));
  return {};
}

// Missing rows and row ends are padded without weight.
Status Trainer::feed_batch(std::string_view entry, const TokenBatch& batch) {
  const int64_t seq = settings_.seq;
  if (batch.rows < 1 || batch.rows > settings_.batch)
    return Status(StatusCode::kInvalidArgument,
                  format("the batch has {} rows, wanted 1 to {} (option batch): add up several", batch.rows,
                         settings_.batch));
  TSR_RETURN_IF_ERROR(check_row(batch));
  std::vector<int32_t> values(static_cast<size_t>(settings_.batch * seq));
  // `otherwise(t, is_given)`: default at position t, inside or outside of the given rows.
  const auto feed = [&](std::string_view input, const int32_t* from, const auto& otherwise) -> Status {
    if (!running_->has_input(entry, input)) return {};
    for (int64_t row = 0; row < settings_.batch; ++row)
      for (int64_t t = 0; t < seq; ++t) {
        const bool is_given = row < batch.rows && t < batch.seq;
        values[static_cast<size_t>(row * seq + t)] = from != nullptr && is_given
                                                         ? from[row * batch.seq + t]
                                                         : otherwise(static_cast<int32_t>(t), is_given);
      }
    const HostTensor value{
        {DType::kI32, Shape{settings_.batch, seq}}, std::as_bytes(std::span(values)), nullptr};
    for (const IndexInput& index : index_inputs_)
      if (index.name == input) TSR_RETURN_IF_ERROR(check_rows(index, value));
    return running_->feed(entry, input, value);
  };
  TSR_RETURN_IF_ERROR(feed("tokens", batch.tokens, [](int32_t, bool) { return 0; }));
  TSR_RETURN_IF_ERROR(feed("labels", batch.labels, [](int32_t, bool) { return -1; }));
  TSR_RETURN_IF_ERROR(feed("positions", batch.positions, [](int32_t t, bool) { return t; }));
  // Padding is a separate document.
  TSR_RETURN_IF_ERROR(feed("segments", batch.segments, [](int32_t, bool is_given) { return is_given ? 0 : -1; }));
  return feed_slots(entry, batch);
}

// Padding has no adapter.
Status Trainer::feed_slots(std::string_view entry, const TokenBatch& batch) {
  if (!running_->has_input(entry, kAdapterInput)) return {};
  if (batch.slots == nullptr)
    return Status(StatusCode::kFailedPrecondition,
                  "this trainer has slots for adapters, and a batch without them changes none: wanted "
                  "tsr_adapter_trainer_new in place of tsr_trainer_new");
  const Shape rows{settings_.batch}, tokens{settings_.batch, settings_.seq};
  // The batch gives one value for all tokens of a row.
  const auto feed = [&]<class T>(std::string_view input, const TensorType& type, const T* given, T padding) -> Status {
    if (!running_->has_input(entry, input)) return {};
    const int64_t width = type.shape.rank() == 1 ? 1 : type.shape[1];
    std::vector<T> values(static_cast<size_t>(settings_.batch * width), padding);
    for (int64_t row = 0; row < batch.rows; ++row)
      std::fill_n(values.begin() + row * width, std::min(width, batch.seq), given[row]);
    return running_->feed(entry, input, HostTensor{type, std::as_bytes(std::span(values)), nullptr});
  };
  TSR_RETURN_IF_ERROR(feed(kAdapterInput, {DType::kI32, tokens}, batch.slots, int32_t{-1}));
  TSR_RETURN_IF_ERROR(feed(kAdapterFactor, {DType::kF32, tokens}, batch.factors, 0.0f));
  TSR_RETURN_IF_ERROR(feed(kRowScale, {DType::kF32, rows}, batch.row_scales, 0.0f));
  TSR_RETURN_IF_ERROR(feed(kDropoutSeed, {DType::kI64, rows}, batch.dropout_seeds, int64_t{0}));
  TSR_RETURN_IF_ERROR(feed(kDropoutRow, {DType::kI64, rows}, batch.row_numbers, int64_t{0}));
  return feed(kDropoutRate, {DType::kF64, rows}, batch.dropout_rates, 0.0);
}

// Values of labels without weight are replaced by 0.
Status Trainer::feed_floats(std::string_view entry, std::string_view input, const TokenBatch& batch,
                            std::span<const float> values, double otherwise) {
  if (!running_->has_input(entry, input)) return {};
  const int64_t seq = settings_.seq;
  floats_.assign(static_cast<size_t>(settings_.batch * seq), 0);
  for (int64_t row = 0; row < batch.rows; ++row)
    for (int64_t t = 0; t < batch.seq; ++t) {
      const auto from = static_cast<size_t>(row * batch.seq + t);
      if (batch.labels[from] < 0) continue;
      const float value = values.empty() ? static_cast<float>(otherwise) : values[from];
      TSR_RETURN_IF_ERROR(check_finite(input, value, row * batch.seq + t, batch.seq));
      floats_[static_cast<size_t>(row * seq + t)] = value;
    }
  return running_->feed(
      entry, input,
      HostTensor{{DType::kF32, Shape{settings_.batch, seq}}, std::as_bytes(std::span(floats_)), nullptr});
}

Status Trainer::feed_loss(std::string_view entry, const TokenBatch& batch, const LossOptions& options) {
  const auto part = [&](const float* values) {
    return values == nullptr ? std::span<const float>() : std::span(values, elements(batch));
  };
  TSR_RETURN_IF_ERROR(feed_floats(entry, "weights", batch, part(batch.weights), 1));
  TSR_RETURN_IF_ERROR(feed_floats(entry, "sampler_logprobs", batch, part(batch.sampler_logprobs), 0));
  TSR_RETURN_IF_ERROR(feed_floats(entry, "advantages", batch, part(batch.advantages), 0));
  if (running_->has_input(entry, "mean_weights")) {
    TSR_ASSIGN_OR_RETURN(const std::vector<float> weights, mean_weights(batch));
    TSR_RETURN_IF_ERROR(feed_floats(entry, "mean_weights", batch, weights, 0));
  }
  for (const auto& [input, value] : {std::pair("loss_scale", options.scale),
                                     {"aux_scale", options.aux_scale},
                                     {"clip_low", options.clip_low},
                                     {"clip_high", options.clip_high},
                                     {"dro_beta", options.beta}})
    TSR_RETURN_IF_ERROR(running_->feed_scalar(entry, input, value));
  return {};
}

Status Trainer::feed_seed(std::string_view entry, uint64_t number) {
  return running_->feed_scalar(entry, "seed", static_cast<double>(seed_of_batch(settings_.seed, number)));
}

// Feeds the step number, the learning rate and the optimizer's settings, as far as the entry reads them. A non-finite loss
// makes the norm non-finite, so nothing is written.
Status Trainer::feed_update(std::string_view entry, const StepInfo& info, const UpdateSettings& settings) {
  const double offset = std::isfinite(info.loss) ? 0 : std::numeric_limits<double>::quiet_NaN();
  if (entry == kUpdateEntry) TSR_RETURN_IF_ERROR(running_->feed_scalar(entry, "norm_offset", offset));
  for (const auto& [name, value] : settings.values)
    TSR_RETURN_IF_ERROR(running_->feed_scalar(entry, step_setting_input(name),
                                              name == "clip_norm" ? norm_bound(value) : value));
  TSR_RETURN_IF_ERROR(running_->feed_scalar(entry, "lr", info.lr));
  return running_->feed_scalar(entry, "step", static_cast<double>(info.step));
}

// The report excludes partial steps as it does evaluations.
Status Trainer::run_part(std::string_view entry) {
  TSR_RETURN_IF_ERROR(feed_seed(entry, number_of_part(step_, accumulated_)));
  const int64_t before = running_->session().allocations();
  const auto begin = std::chrono::steady_clock::now();
  TSR_RETURN_IF_ERROR(running_->run(entry));
  parts_s_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  record_touched_bytes();
  allocations_elsewhere_ += running_->session().allocations() - before;
  return {};
}

Result<std::vector<float>> Trainer::fetch_logprobs(std::string_view entry, const TokenBatch& batch) {
  TSR_ASSIGN_OR_RETURN(const HostTensor value, running_->session().fetch(entry, kLogprobs));
  const auto all = value.as<float>();
  std::vector<float> given;
  for (int64_t row = 0; row < batch.rows; ++row) {
    const auto own = all.subspan(static_cast<size_t>(row * settings_.seq), static_cast<size_t>(batch.seq));
    for (const float logprob : own) given.push_back(logprob + 0.0f);  // -0 becomes 0
  }
  return given;
}

Result<std::vector<float>> Trainer::forward(const TokenBatch& batch) {
  cancelled_ = false;
  TSR_RETURN_IF_ERROR(check_parts(kForwardEntry));
  TSR_RETURN_IF_ERROR(feed_batch(kForwardEntry, batch));
  TSR_RETURN_IF_ERROR(run_part(kForwardEntry));
  return fetch_logprobs(kForwardEntry, batch);
}

Result<LossValue> Trainer::accumulate(std::string_view entry, const TokenBatch& batch) {
  TSR_RETURN_IF_ERROR(run_part(entry));
  LossValue value;
  TSR_ASSIGN_OR_RETURN(value.loss, running_->fetch_scalar(entry, "loss"));
  TSR_ASSIGN_OR_RETURN(value.logprobs, fetch_logprobs(entry, batch));
  if (batch.slots != nullptr) {
    TSR_ASSIGN_OR_RETURN(const HostTensor losses, running_->session().fetch(entry, kRowLosses));
    const auto own = losses.as<float>().first(static_cast<size_t>(batch.rows));
    value.row_losses.assign(own.begin(), own.end());
    return value;  // adapters count for themselves
  }
  ++accumulated_;
  accumulated_labels_ += count_weighted_labels(batch);
  accumulated_loss_ += value.loss;
  return value;
}

namespace {

// The names of the losses that forward_backward computes.
std::vector<std::string> names_of_losses() {
  std::vector<std::string> names;
  for (const TokenLoss loss : all_token_losses())
    if (loss != TokenLoss::kGradient) names.emplace_back(name_of(loss));
  return names;
}

}  // namespace

Result<LossOptions> Trainer::check_loss(const TokenBatch& batch, std::string_view loss,
                                        const Options& options) const {
  const std::optional<TokenLoss> known = token_loss_from_name(loss);
  if (!known || *known == TokenLoss::kGradient)
    return Status(StatusCode::kInvalidArgument,
                  format("loss is '{}', wanted one of {}{}", std::string(loss.substr(0, 64)),
                         join(names_of_losses(), ", "),
                         known ? "; tsr_trainer_backward takes gradients of your own" : ""));
  TSR_RETURN_IF_ERROR(check_parts(accumulation_entry(*known)));
  TSR_ASSIGN_OR_RETURN(const LossOptions read, read_loss_options(*known, options));
  TSR_RETURN_IF_ERROR(check_arrays(batch, *known));
  const bool has_labels = batch.rows > 0 && batch.seq > 0 && batch.labels != nullptr;
  if (*known == TokenLoss::kGspo && has_labels) TSR_RETURN_IF_ERROR(mean_weights(batch).status());
  return read;
}

Result<LossValue> Trainer::forward_backward(const TokenBatch& batch, std::string_view loss,
                                            const Options& options) {
  cancelled_ = false;
  TSR_ASSIGN_OR_RETURN(const LossOptions read, check_loss(batch, loss, options));
  const std::string entry = accumulation_entry(*token_loss_from_name(loss));
  TSR_RETURN_IF_ERROR(feed_batch(entry, batch));
  TSR_RETURN_IF_ERROR(feed_loss(entry, batch, read));
  return accumulate(entry, batch);
}

Status Trainer::backward(const TokenBatch& batch, std::span<const float> gradients) {
  return add_gradients(batch, gradients).status();
}

Status Trainer::check_gradients(const TokenBatch& batch, std::span<const float> gradients) const {
  TSR_RETURN_IF_ERROR(check_parts(accumulation_entry(TokenLoss::kGradient)));
  TSR_RETURN_IF_ERROR(check_arrays(batch, TokenLoss::kGradient));
  if (gradients.size() == elements(batch)) return {};
  return Status(StatusCode::kInvalidArgument,
                format("{} gradients for {} rows of {} tokens, wanted {}", gradients.size(), batch.rows, batch.seq,
                       elements(batch)));
}

Result<LossValue> Trainer::add_gradients(const TokenBatch& batch, std::span<const float> gradients) {
  cancelled_ = false;
  const std::string entry = accumulation_entry(TokenLoss::kGradient);
  TSR_RETURN_IF_ERROR(check_gradients(batch, gradients));
  TSR_RETURN_IF_ERROR(feed_batch(entry, batch));
  TSR_RETURN_IF_ERROR(feed_loss(entry, batch, {}));
  TSR_RETURN_IF_ERROR(feed_floats(entry, "gradients", batch, gradients, 0));
  return accumulate(entry, batch);
}

Result<StepInfo> Trainer::optimizer_step(const Options& options) {
  cancelled_ = false;
  TSR_RETURN_IF_ERROR(check_parts(kUpdateEntry));
  OptionReader reader(options, "optimizer step");
  StepInfo info;
  info.step = step_ + 1;
  info.lr = reader.f64("lr", lr_.value_or(settings_.rate.at(info.step)), 0, 1e6);
  const UpdateSettings update_settings = read_update(reader, settings_.step);
  TSR_RETURN_IF_ERROR(reader.finish());
  if (accumulated_ == 0)
    return Status(StatusCode::kFailedPrecondition,
                  "no gradients wait for an update: tsr_trainer_forward_backward comes first");
  if (accumulated_labels_ == 0) {
    const int64_t batches = accumulated_;
    TSR_RETURN_IF_ERROR(clear_gradients());
    return Status(StatusCode::kFailedPrecondition,
                  format("none of the {} batches since the last update has a label that counts: the update was left "
                         "out, all values are as before, and the gradients are gone",
                         batches));
  }
  info.loss = accumulated_loss_;
  TSR_RETURN_IF_ERROR(feed_update(kUpdateEntry, info, update_settings));
  const int64_t parts = std::exchange(accumulated_, 0);
  accumulated_loss_ = 0;
  accumulated_labels_ = 0;
  const UpdateEnd end{*this};
  begin_update();
  TSR_RETURN_IF_ERROR(run_part(kUpdateEntry));
  TSR_ASSIGN_OR_RETURN(info.grad_norm, running_->fetch_scalar(kUpdateEntry, "grad_norm"));
  if (!std::isfinite(info.grad_norm)) {
    ++skipped_;
    return Status(
        kNotFinite,
        format("step {}: loss {} and gradient norm {} of {} batches are not both finite; the update was "
               "left out, all values are as before, and the gradients are gone",
               info.step, info.loss, info.grad_norm, parts));
  }
  ++step_;
  info.seconds = std::exchange(parts_s_, 0);
  last_step_ = info;
  return info;
}

Result<double> Trainer::update_slot(int32_t slot, const StepInfo& info, const UpdateSettings& settings) {
  cancelled_ = false;
  TSR_RETURN_IF_ERROR(check_parts(kUpdateEntry));
  TSR_RETURN_IF_ERROR(running_->feed_scalar(kUpdateEntry, kUpdatedSlot, slot));
  TSR_RETURN_IF_ERROR(feed_update(kUpdateEntry, info, settings));
  const UpdateEnd end{*this};
  begin_update();
  TSR_RETURN_IF_ERROR(run_part(kUpdateEntry));
  return running_->fetch_scalar(kUpdateEntry, "grad_norm");
}

}  // namespace tessera
