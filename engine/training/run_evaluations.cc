#include "engine/training/run_evaluations.h"

#include <algorithm>
#include <cmath>

#include "graph/base/text.h"

namespace tessera {

bool RunEvaluations::add(int64_t step, const Evaluation& evaluation) {
  note(step, evaluation);
  Json row = {{"step", step}};
  row.update(Json::parse(evaluation_json(evaluation)));
  all_.push_back(std::move(row));
  if (step == 0) return false;
  // A loss that is not finite never improves.
  const double loss = std::isnan(evaluation.loss) ? std::numeric_limits<double>::infinity() : evaluation.loss;
  if (loss < improved_ - min_delta_ || (std::isinf(improved_) && std::isfinite(loss))) {
    improved_ = loss, stale_ = 0;
  } else {
    ++stale_;
  }
  if (!(loss < best_)) return false;
  best_ = loss, best_step_ = step;
  return true;
}

void RunEvaluations::forget_best() {
  best_ = std::numeric_limits<double>::infinity();
  best_step_ = 0;
}

std::string RunEvaluations::stopped_text() const {
  return format("the held-out loss did not improve in {} evaluations (patience {}); the best is step {}", stale_,
                patience_, best_step_);
}

Options RunEvaluations::notes() const {
  if (every_ == 0) return {};
  return {{"best_loss", best_}, {"best_step", best_step_}, {"improved_loss", improved_}, {"stale_evaluations", stale_}};
}

Status RunEvaluations::restore(const std::map<std::string, std::string>& notes) {
  if (every_ == 0 || !notes.contains("best_loss")) return {};
  Status failure;
  const auto number = [&](const char* key) {
    const auto found = notes.find(key);
    const std::string text = found == notes.end() ? "" : found->second;
    const std::optional<double> value =
        text == "inf" ? std::numeric_limits<double>::infinity() : parse_f64(text);
    if (value && !std::isnan(*value)) return *value;
    if (failure.ok())
      failure = Status(StatusCode::kCorrupt,
                       format("the checkpoint's note '{}' is '{}', wanted a number", key, text.substr(0, 100)));
    return 0.0;
  };
  constexpr double kMostSteps = 1e15;
  const double best = number("best_loss"), improved = number("improved_loss");
  const double step = std::clamp(number("best_step"), 0.0, kMostSteps);
  const double stale = std::clamp(number("stale_evaluations"), 0.0, kMostSteps);
  TSR_RETURN_IF_ERROR(failure);
  best_ = best, improved_ = improved;
  best_step_ = static_cast<int64_t>(step), stale_ = static_cast<int64_t>(stale);
  return {};
}

}  // namespace tessera
