#include "engine/program/preference_batch.h"

#include <algorithm>
#include <utility>

#include "engine/base/host_view.h"
#include "engine/program/compile.h"
#include "engine/program/reference_logprobs.h"

namespace tessera {
namespace {

constexpr std::string_view kWeightInputs[] = {"chosen_weights", "rejected_weights"};
constexpr std::string_view kAnswerOutputs[] = {kChosenLogprobs, kRejectedLogprobs};

}  // namespace

Json rewards_json(const PreferenceMetrics& metrics) {
  return {{"chosen_reward", metrics.chosen_reward},
          {"rejected_reward", metrics.rejected_reward},
          {"reward_margin", metrics.margin},
          {"reward_accuracy", metrics.accuracy}};
}

PreferenceBatch::PreferenceBatch(const PreferenceOptions& options, const Dataset& dataset, int64_t batch,
                                 std::vector<double> reference)
    : options_(options), dataset_(dataset), reference_(std::move(reference)), seq_(dataset.seq()) {
  const auto places = static_cast<size_t>(batch * dataset.row_tokens());
  weights_[0].resize(places), weights_[1].resize(places), token_weights_.resize(places);
  labels_of_answer_.resize(static_cast<size_t>(batch * dataset.answers()));
  if (options.loss == PreferenceLoss::kKto) mismatched_ = BatchRows::of(dataset, batch);
}

bool PreferenceBatch::is_own_input(std::string_view input) {
  return std::ranges::find(kWeightInputs, input) != std::end(kWeightInputs) || input == "token_weights" ||
         input == "offset" || input == "sign" || input == "row_weights";
}

int64_t PreferenceBatch::count_token_labels(const BatchRows& rows, int64_t count) const {
  int64_t labels = 0;
  for (int64_t row = 0; row < count; ++row) {
    const auto first = static_cast<size_t>(row * rows.width);
    for (size_t t = first; t < first + static_cast<size_t>(seq_); ++t)
      labels += options_.loss == PreferenceLoss::kOrpo ? t + 1 < first + static_cast<size_t>(seq_) &&
                                                             rows.segments[t + 1] == rows.segments[first]
                                                       : rows.labels[t] >= 0;
  }
  return labels;
}

// Weights of the labels of both answers. kOrpo's token loss includes the prompt, so its tokens get labels.
void PreferenceBatch::fill_rows(BatchRows& rows) {
  const auto seq = static_cast<size_t>(seq_);
  std::ranges::fill(weights_[0], 0.0f), std::ranges::fill(weights_[1], 0.0f);
  for (size_t at = 0; at < labels_of_answer_.size(); ++at) {
    const size_t first = at * seq;
    std::vector<float>& weights = weights_[at % static_cast<size_t>(dataset_.answers())];
    const auto labels = std::span(rows.labels).subspan(first, seq);
    const auto count = std::ranges::count_if(labels, [](int32_t label) { return label >= 0; });
    labels_of_answer_[at] = static_cast<double>(count);
    const double weight =
        reads_means(options_.loss) ? 1 / static_cast<double>(std::max<ptrdiff_t>(1, count)) : 1;
    for (size_t t = 0; t < seq; ++t)
      if (labels[t] >= 0) weights[first + t] = static_cast<float>(weight);
  }
}

// Computes the reference point: the mean gain of mismatched answers, at least 0.
Status PreferenceBatch::find_reference_point(ProgramRunner& runner, std::span<const int64_t> numbers) {
  for (size_t row = 0; row < numbers.size(); ++row)
    TSR_RETURN_IF_ERROR(dataset_.fill_mismatched(numbers[row], mismatched_.batch,
                                                 mismatched_.row(static_cast<int64_t>(row))));
  TSR_RETURN_IF_ERROR(mismatched_.feed(runner, kMismatchedEntry));
  TSR_RETURN_IF_ERROR(runner.run(kMismatchedEntry));
  TSR_ASSIGN_OR_RETURN(const std::vector<double> sums, answer_sums(runner, kMismatchedEntry, mismatched_, 1));
  double gain = 0;
  for (int64_t row = 0; row < count_; ++row) {
    const auto at = static_cast<size_t>(row);
    gain += sums[at] - reference_of(numbers[at], 1);
  }
  reference_point_ = std::max(0.0, gain / static_cast<double>(count_));
  return {};
}

Status PreferenceBatch::feed_floats(ProgramRunner& runner, std::string_view entry, std::string_view input,
                                    const std::vector<float>& values, const Shape& shape) const {
  const TensorType* type = runner.find_input(entry, input);
  if (type == nullptr) return {};
  if (type->dtype != DType::kF64) return runner.feed(entry, input, view_of(values, shape));
  const std::vector<double> wide(values.begin(), values.end());
  return runner.feed(entry, input, HostTensor{{DType::kF64, shape}, std::as_bytes(std::span(wide)), nullptr});
}

Status PreferenceBatch::feed(ProgramRunner& runner, std::string_view entry, std::span<const int64_t> numbers,
                             int64_t count, BatchRows& rows, double share, double token_share) {
  numbers_.assign(numbers.begin(), numbers.end());
  count_ = count;
  if (options_.loss == PreferenceLoss::kKto) TSR_RETURN_IF_ERROR(find_reference_point(runner, numbers));
  fill_rows(rows);
  const auto width = static_cast<size_t>(rows.width), seq = static_cast<size_t>(seq_);
  std::vector<float> offsets(numbers.size()), signs(numbers.size()), row_weights(numbers.size());
  std::ranges::fill(token_weights_, 0.0f);
  for (size_t row = 0; row < numbers.size(); ++row) {
    const bool counts = static_cast<int64_t>(row) < count;
    double reference = reference_of(numbers[row], 0), weight = counts ? share : 0;
    if (options_.loss == PreferenceLoss::kKto) {
      const bool wanted = dataset_.is_wanted(numbers[row]);
      signs[row] = wanted ? 1.0f : -1.0f;
      weight *= wanted ? options_.desirable_weight : options_.undesirable_weight;
      reference += reference_point_;
    } else if (options_.loss == PreferenceLoss::kIpo) {
      reference = reference / std::max(1.0, labels_of_answer_[2 * row]) -
                  reference_of(numbers[row], 1) / std::max(1.0, labels_of_answer_[2 * row + 1]);
    } else {
      reference -= reference_of(numbers[row], 1);
    }
    offsets[row] = static_cast<float>(offset_of(options_, reference));
    row_weights[row] = static_cast<float>(weight);
    if (!has_token_loss(options_.loss)) continue;
    const size_t first = row * width;
    for (size_t t = first; t + 1 < first + seq; ++t) {
      if (options_.loss == PreferenceLoss::kOrpo) {
        if (rows.segments[t + 1] != rows.segments[first]) break;
        rows.labels[t] = rows.tokens[t + 1];
      }
      if (counts && rows.labels[t] >= 0)
        token_weights_[t] = static_cast<float>(
            token_share * (options_.loss == PreferenceLoss::kCpo ? options_.cpo_alpha : 1));
    }
  }
  TSR_RETURN_IF_ERROR(rows.feed(runner, entry));
  const Shape of_rows{rows.batch}, of_tokens{rows.batch, rows.width};
  for (size_t answer = 0; answer < 2; ++answer)
    TSR_RETURN_IF_ERROR(feed_floats(runner, entry, kWeightInputs[answer], weights_[answer], of_tokens));
  TSR_RETURN_IF_ERROR(feed_floats(runner, entry, "token_weights", token_weights_, of_tokens));
  TSR_RETURN_IF_ERROR(feed_floats(runner, entry, "offset", offsets, of_rows));
  TSR_RETURN_IF_ERROR(feed_floats(runner, entry, "sign", signs, of_rows));
  return feed_floats(runner, entry, "row_weights", row_weights, of_rows);
}

Status PreferenceBatch::add_metrics(ProgramRunner& runner, std::string_view entry) {
  std::vector<double> logprobs[2];
  for (size_t answer = 0; answer < static_cast<size_t>(dataset_.answers()); ++answer) {
    TSR_ASSIGN_OR_RETURN(const HostTensor found, runner.session().fetch(entry, kAnswerOutputs[answer]));
    logprobs[answer] = doubles_of(found);
  }
  const bool sums_again = options_.loss == PreferenceLoss::kIpo;
  for (int64_t row = 0; row < count_; ++row) {
    const auto at = static_cast<size_t>(row);
    const auto reward = [&](size_t answer) {
      const double tokens = sums_again ? labels_of_answer_[2 * at + answer] : 1;
      return options_.beta *
             (logprobs[answer][at] * tokens - reference_of(numbers_[at], static_cast<int64_t>(answer)));
    };
    ++rows_;
    if (dataset_.answers() == 1) {
      const double own = reward(0), least = options_.beta * reference_point_;
      const bool wanted = dataset_.is_wanted(numbers_[at]);
      (wanted ? chosen_ : rejected_) += own;
      ++(wanted ? chosen_count_ : rejected_count_);
      right_ += wanted ? own > least : own < least;
      continue;
    }
    const double chosen = reward(0), rejected = reward(1);
    chosen_ += chosen, rejected_ += rejected;
    ++chosen_count_, ++rejected_count_;
    right_ += chosen > rejected;
  }
  return {};
}

PreferenceMetrics PreferenceBatch::take_metrics() {
  const auto mean = [](double sum, int64_t count) {
    return count > 0 ? sum / static_cast<double>(count) : 0;
  };
  PreferenceMetrics metrics{mean(chosen_, chosen_count_), mean(rejected_, rejected_count_), 0,
                            mean(static_cast<double>(right_), rows_)};
  metrics.margin = metrics.chosen_reward - metrics.rejected_reward;
  chosen_ = rejected_ = 0;
  chosen_count_ = rejected_count_ = right_ = rows_ = 0;
  return metrics;
}

}  // namespace tessera
