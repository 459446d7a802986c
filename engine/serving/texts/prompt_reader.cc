#include "engine/serving/texts/prompt_reader.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "engine/sampling/log_probabilities.h"
#include "graph/base/status_codes.h"
#include "graph/base/text.h"

namespace tessera {

using Kind = PromptTask::Kind;

PromptReader::PromptReader(const PromptTask& task, std::span<const int32_t> prompt, size_t width)
    : task_(task), prompt_(prompt.begin(), prompt.end()), width_(width) {
  result_.is_scores = task.kind == Kind::kScores;
  if (task.kind == Kind::kVector) pooled_.emplace(task.form.pooling, width);
  // The first token has no score.
  if (result_.is_scores && task.first == 0) {
    result_.values.push_back(std::numeric_limits<float>::quiet_NaN());
    result_.greedy.push_back(0);
  }
}

void PromptReader::prepare(Sequence& sequence) const {
  sequence.generates = false;
  const auto count = std::ssize(prompt_);
  if (task_.kind == Kind::kScores) {
    sequence.tokens.resize(
        static_cast<size_t>(count - 1));  // the last row predicts nothing that is requested
    sequence.logits_begin = std::max<int64_t>(task_.first, 1) - 1;
    sequence.logits_end = count - 1;
    return;
  }
  const bool is_vector = task_.kind == Kind::kVector;
  sequence.hidden_end = is_vector && task_.form.pooling == Pooling::kCls ? 1 : count;
  sequence.hidden_begin = is_vector && task_.form.pooling == Pooling::kLast ? count - 1 : 0;
  sequence.tokens.resize(static_cast<size_t>(sequence.hidden_end));
}

void PromptReader::take_hidden(std::span<const float> rows) {
  if (pooled_)
    pooled_->add(rows);
  else
    result_.values.insert(result_.values.end(), rows.begin(), rows.end());
}

Status PromptReader::take_logits(std::span<const float> rows, int64_t first, int64_t count,
                                 std::vector<int32_t>& order) {
  const size_t vocabulary = rows.size() / static_cast<size_t>(count);
  for (int64_t i = 0; i < count; ++i) {
    const auto place = static_cast<size_t>(first + i + 1);
    const std::span<const float> logits = rows.subspan(static_cast<size_t>(i) * vocabulary, vocabulary);
    const int32_t token = prompt_[place];
    const auto logprob = static_cast<float>(log_probabilities(logits, token, 0, order).own.log_probability);
    if (std::isnan(logprob))
      return Status(
          kNotFinite,
          format("the log probability of token {} of the prompt is not a number: the model's weights or "
                 "logits are not finite",
                 place));
    result_.values.push_back(logprob);
    const float own = logits[static_cast<size_t>(token)];
    result_.greedy.push_back(std::ranges::none_of(logits, [own](float logit) { return logit > own; }));
  }
  return {};
}

Result<PromptResult> PromptReader::finish() {
  bool is_finite = true;
  if (pooled_) {
    result_.values.resize(width_);
    is_finite = pooled_->write(result_.values);
    if (task_.form.normalize) scale_to_length_1(result_.values);
  } else if (task_.kind == Kind::kHidden) {
    is_finite = std::ranges::all_of(result_.values, [](float value) { return std::isfinite(value); });
  }
  if (!is_finite)
    return Status(kNotFinite, "the numbers of the prompt are not finite: the model's weights are not");
  return std::move(result_);
}

}  // namespace tessera
