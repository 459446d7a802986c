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

// Positions restart with each document where several share a row; else they are fed once.
Status Trainer::feed_rows(std::string_view entry) {
  for (const auto& [input, values] : {std::pair("tokens", &tokens_),
                                      {"labels", &labels_},
                                      {"positions", &positions_},
                                      {"segments", &segments_}})
    if (!values->empty() && running_->has_input(entry, input))
      TSR_RETURN_IF_ERROR(
          running_->feed(entry, input, view_of(*values, Shape{settings_.batch, dataset_->seq()})));
  return {};
}

DatasetRow Trainer::row_of_batch(int64_t row) {
  const auto part = [&, seq = static_cast<size_t>(dataset_->seq())](std::vector<int32_t>& values) {
    return values.empty() ? std::span<int32_t>()
                          : std::span(values).subspan(static_cast<size_t>(row) * seq, seq);
  };
  return {part(tokens_), part(labels_), part(positions_), part(segments_)};
}

Status Trainer::feed_training_batch() {
  for (int64_t row = 0; row < settings_.batch; ++row)
    TSR_RETURN_IF_ERROR(dataset_->fill_training_row(position_ * settings_.batch + row, row_of_batch(row)));
  TSR_RETURN_IF_ERROR(feed_rows(kTrainEntry));
  const int64_t counted = std::ranges::count_if(labels_, [](int32_t label) { return label >= 0; });
  return running_->feed_scalar(kTrainEntry, "loss_scale",
                               1.0 / static_cast<double>(std::max<int64_t>(1, counted)));
}

Status Trainer::feed_eval_batch(int64_t first, int64_t rows, double scale) {
  for (int64_t row = 0; row < settings_.batch; ++row) {
    const DatasetRow values = row_of_batch(row);
    TSR_RETURN_IF_ERROR(dataset_->fill_eval_row(first + std::min(row, rows - 1), values));
    if (row >= rows) std::ranges::fill(values.labels, -1);  // padding of the batch, without weight
  }
  TSR_RETURN_IF_ERROR(feed_rows(kEvalEntry));
  return running_->feed_scalar(kEvalEntry, "loss_scale", scale);
}

// Labels of the batch that was evaluated last than which no token has a higher logit.
Result<int64_t> Trainer::count_predicted() {
  TSR_ASSIGN_OR_RETURN(const HostTensor margins, running_->session().fetch(kEvalEntry, kLabelMargins));
  const auto count = [&](auto values) {
    int64_t predicted = 0;
    for (size_t i = 0; i < labels_.size(); ++i) predicted += labels_[i] >= 0 && values[i] <= 0 ? 1 : 0;
    return predicted;
  };
  return margins.type.dtype == DType::kF64 ? count(margins.as<double>()) : count(margins.as<float>());
}

Result<Evaluation> Trainer::evaluate_dataset() {
  int64_t samples = dataset_->eval_samples();
  if (settings_.eval_batches > 0) samples = std::min(samples, settings_.eval_batches * settings_.batch);
  if (samples == 0)
    return Status(StatusCode::kFailedPrecondition,
                  "the dataset keeps no samples for evaluation: set its option eval_fraction");
  Evaluation found;
  TSR_ASSIGN_OR_RETURN(found.labels, dataset_->count_eval_labels(samples));
  const double scale = 1.0 / static_cast<double>(std::max<int64_t>(1, found.labels));
  for (int64_t first = 0; first < samples; first += settings_.batch) {
    TSR_RETURN_IF_ERROR(feed_eval_batch(first, std::min(settings_.batch, samples - first), scale));
    TSR_RETURN_IF_ERROR(running_->run(kEvalEntry));
    TSR_ASSIGN_OR_RETURN(const double part, running_->fetch_scalar(kEvalEntry, "loss"));
    TSR_ASSIGN_OR_RETURN(const int64_t predicted, count_predicted());
    found.loss += part;
    found.correct += predicted;
    if (cancelled_) return Status(StatusCode::kCancelled, "evaluation cancelled");
  }
  return found;
}

std::string evaluation_json(const Evaluation& evaluation) {
  const bool counts = evaluation.labels > 0;
  return dump(Json{{"loss", evaluation.loss},
                   {"perplexity", std::exp(evaluation.loss)},
                   {"accuracy", counts ? Json(static_cast<double>(evaluation.correct) /
                                              static_cast<double>(evaluation.labels))
                                       : Json(nullptr)},
                   {"labels", evaluation.labels},
                   {"correct", evaluation.correct},
                   {"seconds", evaluation.seconds}});
}

}  // namespace tessera
