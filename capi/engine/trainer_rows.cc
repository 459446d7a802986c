// Rows of the dataset, as the trainer feeds them to the entries of training and evaluation.
#include <algorithm>
#include <cmath>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "capi/engine/compile.h"
#include "capi/engine/host_view.h"
#include "capi/engine/trainer.h"
#include "graph/transform/label_margins.h"
#include "serialize/json.h"

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

Result<std::vector<int64_t>> Trainer::fill_training_rows(int64_t batch) {
  std::vector<int64_t> numbers;
  for (int64_t row = 0; row < settings_.batch; ++row) {
    numbers.push_back(dataset_->number_at(batch * settings_.batch + row));
    TSR_RETURN_IF_ERROR(dataset_->fill_row(numbers.back(), rows_.row(row)));
  }
  return numbers;
}

double Trainer::sum_label_weights() const {
  if (preferences_) return static_cast<double>(preferences_->count_token_labels(rows_, settings_.batch));
  return rows_.weight();
}

namespace {

double share_of(double weight) { return weight > 0 ? 1 / weight : 1; }

}  // namespace

// `weight`: of the labels of all batches of the step.
Status Trainer::feed_training_batch(std::string_view entry, std::span<const int64_t> numbers, double weight) {
  const double share = share_of(weight);
  if (preferences_)
    return feed_preferences(entry, numbers, settings_.batch,
                            1.0 / static_cast<double>(settings_.batch * settings_.accumulate), share);
  TSR_RETURN_IF_ERROR(rows_.feed(*running_, entry));
  return running_->feed_scalar(entry, "loss_scale", share);
}

// A batch that is not full repeats its last row, without weight. `scale`: one over the labels of all batches; a
// preference counts one over `samples`.
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

// Number of labels in the last evaluated batch than which no token has a higher logit.
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

// A preference loss counts the labels of its token loss.
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

Result<Evaluation> Trainer::evaluate_dataset() {
  int64_t samples = dataset_->eval_samples();
  if (settings_.eval_batches > 0 && settings_.eval_batches <= samples / settings_.batch)
    samples = settings_.eval_batches * settings_.batch;
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
