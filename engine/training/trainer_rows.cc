// Rows of the dataset, as inputs of the training and evaluation entries.
#include <algorithm>
#include <cmath>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/host_view.h"
#include "engine/program/compile.h"
#include "engine/training/trainer.h"
#include "graph/base/text.h"
#include "graph/transform/label_margins.h"
#include "text/json.h"

namespace tessera {

Status Trainer::feed_defaults(int64_t seq, std::span<const std::string> entries) {
  std::vector<int32_t> values(static_cast<size_t>(settings_.batch * seq));
  const auto feed_all = [&](std::string_view input) -> Status {
    const HostTensor value = view_of(values, Shape{settings_.batch, seq});
    for (const std::string& entry : entries)
      if (running_->has_input(entry, input)) TSR_RETURN_IF_ERROR(running_->feed(entry, input, value));
    return {};
  };
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<int32_t>(static_cast<int64_t>(i) % seq);
  TSR_RETURN_IF_ERROR(feed_all("positions"));
  std::ranges::fill(values, 0);
  TSR_RETURN_IF_ERROR(feed_all("token_types"));
  return feed_all("segments");
}

Status Trainer::feed_preferences(std::string_view entry, std::span<const int64_t> numbers, int64_t count,
                                 double share, double token_share) {
  return preferences_->feed(*running_, entry, numbers, count, rows_, share, token_share);
}

std::vector<int64_t> Trainer::training_rows(int64_t batch) const {
  std::vector<int64_t> numbers;
  for (int64_t row = 0; row < settings_.batch; ++row)
    numbers.push_back(dataset_->number_at(batch * settings_.batch + row));
  return numbers;
}

Status Trainer::fill_training_rows(int64_t batch) {
  const std::vector<int64_t> numbers = training_rows(batch);
  for (size_t row = 0; row < numbers.size(); ++row)
    TSR_RETURN_IF_ERROR(dataset_->fill_row(numbers[row], rows_.row(static_cast<int64_t>(row))));
  return {};
}

double Trainer::sum_label_weights() const {
  if (preferences_) return static_cast<double>(preferences_->count_token_labels(rows_, settings_.batch));
  return rows_.weight();
}

bool Trainer::has_labels() const {
  if (sum_label_weights() > 0) return true;  // for a preference loss, of the chosen answers alone
  return preferences_ && std::ranges::any_of(rows_.labels, [](int32_t label) { return label >= 0; });
}

Result<double> Trainer::find_labelled_step() {
  const int64_t rows = settings_.batch * settings_.accumulate, begin = position_;
  // This many consecutive rows contain a whole epoch.
  const int64_t most = 2 * dataset_->train_samples() + rows;
  for (int64_t read = 0; read < most; read += rows) {
    double weight = 0;
    bool counts = false;
    for (int64_t batch = 0; batch < settings_.accumulate; ++batch) {
      TSR_RETURN_IF_ERROR(fill_training_rows(position_ + batch));
      weight += sum_label_weights();
      counts = counts || has_labels();
    }
    if (counts) return weight;
    if (cancelled_) return Status(StatusCode::kCancelled, "step cancelled; all values are as before");
    position_ += settings_.accumulate;
    if (unlabelled_++ == 0)
      running_->prepared()->runtime->log().add(
          2, format("training: step {}: none of the next {} rows has a label that counts, so that they are passed over: "
                    "the step takes the rows that follow. \"unlabelled_steps\" of the report counts such steps; a "
                    "cause is packing that splits long prompts, or rows whose labels are all -1",
                    step_ + 1, rows));
  }
  unlabelled_ -= (position_ - begin) / settings_.accumulate;
  position_ = begin;
  return Status(StatusCode::kFailedPrecondition,
                format("none of the dataset's {} rows for training has a label that counts: there is nothing to "
                       "learn, and no step is made; wanted rows with labels",
                       dataset_->train_samples()));
}

// A loss scaled by the caller may have other terms.
Status Trainer::check_fed_labels() const {
  const int64_t inputs = std::ranges::count_if(index_inputs_, &IndexInput::is_label);
  if (loss_scale_fed_ || inputs != 1 || label_count_.value_or(1) > 0) return {};
  const auto labels = std::ranges::find_if(index_inputs_, &IndexInput::is_label);
  return Status(StatusCode::kFailedPrecondition,
                format("input '{}' has no label that is 0 or more: there is nothing to learn or to evaluate, and all "
                       "values are as before; feed labels, or feed 'loss_scale' where the loss has other terms",
                       labels->name));
}

namespace {

double share_of(double weight) { return weight > 0 ? 1 / weight : 1; }

}  // namespace

// `weight`: of all labels of the step.
Status Trainer::feed_training_batch(std::string_view entry, std::span<const int64_t> numbers, double weight) {
  const double share = share_of(weight);
  if (preferences_)
    return feed_preferences(entry, numbers, settings_.batch,
                            1.0 / static_cast<double>(settings_.batch * settings_.accumulate), share);
  TSR_RETURN_IF_ERROR(rows_.feed(*running_, entry));
  return running_->feed_scalar(entry, "loss_scale", share);
}

// An incomplete batch repeats its last row without weight. `scale`: one
// over the labels of all batches; a preference counts one over `samples`.
Status Trainer::feed_eval_batch(int64_t first, int64_t rows, double scale, int64_t samples) {
  std::vector<int64_t> numbers;
  for (int64_t row = 0; row < settings_.batch; ++row) {
    const DatasetRow values = rows_.row(row);
    numbers.push_back(dataset_->train_samples() + first + std::min(row, rows - 1));
    TSR_RETURN_IF_ERROR(dataset_->fill_row(numbers.back(), values));
    if (row >= rows && !preferences_) std::ranges::fill(values.labels, -1);
  }
  if (preferences_)
    return feed_preferences(kEvalEntry, numbers, rows, 1.0 / static_cast<double>(samples), scale);
  TSR_RETURN_IF_ERROR(rows_.feed(*running_, kEvalEntry));
  return running_->feed_scalar(kEvalEntry, "loss_scale", scale);
}

// Counts labels of the last evaluated batch that have the highest logit.
Result<int64_t> Trainer::count_predicted() {
  TSR_ASSIGN_OR_RETURN(const HostTensor margins, running_->session().fetch(kEvalEntry, kLabelMargins));
  const auto count = [&](auto values) {
    int64_t predicted = 0;
    for (size_t i = 0; i < rows_.labels.size(); ++i)
      predicted += rows_.labels[i] >= 0 && values[i] <= 0 ? 1 : 0;
    return predicted;
  };
  return margins.type.dtype == DType::kF64 ? count(margins.as<double>()) : count(margins.as<float>());
}

// Weight of the labels; a preference loss counts those of its token loss.
Result<double> Trainer::sum_eval_weights(int64_t samples) {
  if (!preferences_ && !dataset_->has_weights()) {
    TSR_ASSIGN_OR_RETURN(const int64_t labels, dataset_->count_eval_labels(samples));
    return static_cast<double>(labels);
  }
  double sum = 0;
  std::ranges::fill(rows_.labels, -1);
  for (int64_t row = 0; row < samples; ++row) {
    TSR_RETURN_IF_ERROR(dataset_->fill_eval_row(row, rows_.row(0)));
    sum += preferences_ ? static_cast<double>(preferences_->count_token_labels(rows_, 1)) : rows_.weight();
  }
  return sum;
}

int64_t Trainer::evaluated_samples() const {
  const int64_t samples = dataset_->eval_samples();
  const bool is_part = settings_.eval_batches > 0 && settings_.eval_batches <= samples / settings_.batch;
  return is_part ? settings_.eval_batches * settings_.batch : samples;
}

Status Trainer::check_eval_labels() {
  const int64_t samples = dataset_ ? evaluated_samples() : 0;
  if (samples == 0) return {};
  if (!preferences_) {
    TSR_ASSIGN_OR_RETURN(const int64_t labels, dataset_->count_eval_labels(samples));
    if (labels > 0) return {};
  } else {
    std::ranges::fill(rows_.labels, -1);
    for (int64_t row = 0; row < samples; ++row) {
      TSR_RETURN_IF_ERROR(dataset_->fill_eval_row(row, rows_.row(0)));
      if (has_labels()) return {};
    }
  }
  return Status(StatusCode::kInvalidArgument,
                format("none of the {} rows held out for evaluation has a label that counts: a loss of them means "
                       "nothing; wanted others, a larger 'seq', or none (eval_fraction 0, no eval_file)",
                       samples));
}

Result<Evaluation> Trainer::evaluate_dataset() {
  const int64_t samples = evaluated_samples();
  if (samples == 0)
    return Status(StatusCode::kFailedPrecondition,
                  "the dataset keeps no samples for evaluation: set its option eval_fraction");
  Evaluation found;
  if (!preferences_) {
    TSR_ASSIGN_OR_RETURN(found.labels, dataset_->count_eval_labels(samples));
  }
  TSR_ASSIGN_OR_RETURN(const double weight, sum_eval_weights(samples));
  const double scale = share_of(weight);
  if (preferences_) (void)preferences_->take_metrics();
  for (int64_t first = 0; first < samples; first += settings_.batch) {
    TSR_RETURN_IF_ERROR(feed_eval_batch(first, std::min(settings_.batch, samples - first), scale, samples));
    TSR_RETURN_IF_ERROR(running_->run(kEvalEntry));
    if (preferences_) TSR_RETURN_IF_ERROR(preferences_->add_metrics(*running_, kEvalEntry));
    TSR_ASSIGN_OR_RETURN(const double part, running_->fetch_scalar(kEvalEntry, "loss"));
    found.loss += part;
    if (!preferences_) {
      TSR_ASSIGN_OR_RETURN(const int64_t predicted, count_predicted());
      found.correct += predicted;
    }
    if (cancelled_) return Status(StatusCode::kCancelled, "evaluation cancelled");
  }
  if (preferences_) found.preference = eval_preference_ = preferences_->take_metrics();
  return found;
}

std::string evaluation_json(const Evaluation& evaluation) {
  const bool counts = evaluation.labels > 0;
  Json json{{"loss", evaluation.loss},
            {"perplexity", evaluation.preference ? Json(nullptr) : Json(std::exp(evaluation.loss))},
            {"accuracy",
             counts ? Json(static_cast<double>(evaluation.correct) / static_cast<double>(evaluation.labels))
                    : Json(nullptr)},
            {"labels", evaluation.labels},
            {"correct", evaluation.correct},
            {"seconds", evaluation.seconds}};
  if (evaluation.preference) json["rewards"] = rewards_json(*evaluation.preference);
  return dump(json);
}

}  // namespace tessera
