// The report of a training run (tessera.h, tsr_run_report).
#include <utility>

#include "engine/training/training_run.h"

namespace tessera {

std::string TrainingRun::report_json() {
  const Json summary = Json::parse(log_->summary_json());
  const Json trained = Json::parse(trainer_->report_json());
  Json report = {{"step", done_}, {"steps", steps_}, {"outcome", outcome_.empty() ? Json(nullptr) : Json(outcome_)}};
  report["losses"] = losses_;
  if (trainer_->settings().preference) report["rewards"] = rewards_;
  report["evaluation"] = evaluation_ ? Json::parse(evaluation_json(*evaluation_)) : Json(nullptr);
  report["eval_loss"] = evaluation_ ? report["evaluation"]["loss"] : Json(nullptr);
  report["evaluations"] = evaluations_.all();
  const bool has_best = evaluations_.keeps_best() && evaluations_.best_step() > 0;
  report["best_step"] = has_best ? Json(evaluations_.best_step()) : Json(nullptr);
  report["best_loss"] = has_best ? Json(evaluations_.best_loss()) : Json(nullptr);
  report["stopped_early"] = ends_early();
  for (const char* key : {"step_seconds", "tokens_per_second", "best_eval_loss", "seconds", "limit"})
    report[key] = summary[key];
  for (const char* key : {"plan", "devices", "comm", "allocations_after_first_step", "unlabelled_steps", "saving"})
    report[key] = trained[key];
  const auto or_null = [](const std::string& path) { return path.empty() ? Json(nullptr) : Json(path); };
  report["checkpoint"] = or_null(checkpoints_->folder());
  report["checkpoint_every"] = checkpoints_->writes() ? checkpoint_every_ : 0;
  report["saved_step"] = checkpoints_->saved_step() < 0 ? Json(nullptr) : Json(checkpoints_->saved_step());
  report["out"] = or_null(output_.path());
  report["out_kind"] = output_.is_empty() ? Json(nullptr) : Json(output_.kind());
  report["out_step"] = is_written_ ? Json(written_step_) : Json(nullptr);
  return dump(report);
}

}  // namespace tessera
