#include "held_out.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "preference_options.h"

namespace cli {

void add_held_out_options(CLI::App& command, HeldOutOptions& options) {
  command
      .add_option("--eval-every", options.every,
                  "steps between evaluations of what is held out; 0: one at the end")
      ->capture_default_str();
  command.add_flag(
      "--keep-best", options.keep_best,
      "keep the checkpoint with the least held-out loss as CHECKPOINT.best, and write --out from it");
  command
      .add_option("--patience", options.patience,
                  "end the training after so many evaluations in a row without an improvement, with "
                  "--keep-best; 0: never")
      ->capture_default_str();
  command
      .add_option("--min-delta", options.min_delta,
                  "by how much the held-out loss must fall to be an improvement")
      ->capture_default_str();
}

Json evaluate(const Trainer& trainer) { return Json::parse(text(tsr_trainer_evaluate_all, trainer.get())); }

std::string evaluation_text(const Json& evaluation) {
  const auto number = [&](const char* key) {
    return evaluation[key].is_null() ? std::nan("") : evaluation[key].get<double>();
  };
  char line[160];
  if (evaluation.contains("rewards")) {
    std::snprintf(line, sizeof line, "%.6g  ", number("loss"));
    return line + rewards_text(evaluation["rewards"]);
  }
  std::snprintf(line, sizeof line, "%.6g nats a token, perplexity %.6g, %.2f %% of %lld tokens predicted",
                number("loss"), number("perplexity"), 100 * number("accuracy"),
                static_cast<long long>(evaluation["labels"].get<int64_t>()));
  return line;
}

HeldOut::HeldOut(const HeldOutOptions& options, bool is_held_out) : options_(options) {
  const auto refuse = [](const std::string& why) { throw Error(TSR_INVALID_ARGUMENT, why); };
  const auto count = [&](const char* option, int64_t value) {
    if (value < 0) refuse(std::string(option) + " is " + std::to_string(value) + ", wanted 0 or more");
  };
  count("--eval-every", options.every);
  count("--patience", options.patience);
  if (!(options.min_delta >= 0 && std::isfinite(options.min_delta)))
    refuse("--min-delta is " + Json(options.min_delta).dump() + ", wanted 0 or more");
  if (options.min_delta > 0 && options.patience == 0)
    refuse("--min-delta belongs to --patience N, which is missing");
  if (options.every == 0 && (options.patience > 0 || options.keep_best))
    refuse(std::string(options.patience > 0 ? "--patience" : "--keep-best") +
           " needs --eval-every N: evaluations tell which step is best");
  if (options.every > 0 && !is_held_out)
    refuse("--eval-every needs held-out rows: --eval-fraction SHARE or --eval-file FILE");
}

bool HeldOut::add(int64_t step, const Json& evaluation) {
  last_ = evaluation, last_step_ = step;
  Json row = {{"step", step}};
  row.update(evaluation);
  all_.push_back(row);
  // A loss that is not finite is no improvement.
  const double loss = evaluation["loss"].is_null() ? std::numeric_limits<double>::infinity()
                                                   : evaluation["loss"].get<double>();
  if (loss < improved_ - options_.min_delta || (std::isinf(improved_) && std::isfinite(loss))) {
    improved_ = loss, stale_ = 0;
  } else {
    ++stale_;
  }
  if (!(loss < best_)) return false;
  best_ = loss, best_step_ = step;
  return true;
}

void HeldOut::forget_best() {
  best_ = std::numeric_limits<double>::infinity();
  best_step_ = 0;
}

std::string HeldOut::stopped_text() const {
  return "the held-out loss did not improve in " + std::to_string(stale_) + " evaluations (--patience " +
         std::to_string(options_.patience) + "); the best is step " + std::to_string(best_step_);
}

Options HeldOut::notes() const {
  Options notes = make<Options>(tsr_options_new);
  if (options_.every == 0) return notes;
  set(notes, "best_loss", best_);
  set(notes, "best_step", best_step_);
  set(notes, "improved_loss", improved_);
  set(notes, "stale_evaluations", stale_);
  return notes;
}

void HeldOut::restore(const Json& notes) {
  if (options_.every == 0 || !notes.contains("best_loss")) return;
  const auto number = [&](const char* key) {
    const std::string text = notes.value(key, "");
    char* end = nullptr;
    const double value = std::strtod(text.c_str(), &end);
    if (text.empty() || *end != '\0' || std::isnan(value))
      throw Error(TSR_CORRUPT,
                  std::string("the checkpoint's note '") + key + "' is '" + text + "', wanted a number");
    return value;
  };
  best_ = number("best_loss");
  improved_ = number("improved_loss");
  best_step_ = static_cast<int64_t>(std::max(0.0, std::min(number("best_step"), 1e15)));
  stale_ = static_cast<int64_t>(std::max(0.0, std::min(number("stale_evaluations"), 1e15)));
}

}  // namespace cli
