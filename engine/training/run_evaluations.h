// RunEvaluations: the evaluations of a run on held-out
// rows, the best one, and early stopping with patience.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>

#include "engine/settings/run_settings.h"
#include "engine/training/trainer.h"
#include "text/json.h"

namespace tessera {

class RunEvaluations {
 public:
  explicit RunEvaluations(const RunSettings& settings)
      : every_(settings.eval_every),
        patience_(settings.patience),
        min_delta_(settings.min_delta),
        keeps_best_(settings.keeps_best) {}

  bool is_due(int64_t step, int64_t steps) const {
    return every_ > 0 && (step % every_ == 0 || step == steps);
  }
  // Adds the evaluation of a step. True if it is the best so far; one before the first step never is.
  bool add(int64_t step, const Evaluation& evaluation);
  // Records the last step's evaluation, which affects neither the best nor patience.
  void note(int64_t step, const Evaluation& evaluation) { last_ = evaluation, last_step_ = step; }
  bool is_stopped() const { return patience_ > 0 && stale_ >= patience_; }
  std::string stopped_text() const;
  bool keeps_best() const { return keeps_best_; }
  int64_t best_step() const { return best_step_; }  // 0: none yet
  double best_loss() const { return best_; }
  void forget_best();
  // The last evaluation, if it is of this step.
  std::optional<Evaluation> last(int64_t step) const { return step == last_step_ ? last_ : std::nullopt; }
  const Json& all() const { return all_; }  // by this process: [{"step", "loss", ...}]

  // The state as notes of a checkpoint, and restored from them.
  Options notes() const;
  Status restore(const std::map<std::string, std::string>& notes);

 private:
  const int64_t every_, patience_;
  const double min_delta_;
  const bool keeps_best_;
  double best_ = std::numeric_limits<double>::infinity();
  double improved_ = best_;  // loss that the next improvement is compared to
  int64_t best_step_ = 0, last_step_ = 0, stale_ = 0;
  std::optional<Evaluation> last_;
  Json all_ = Json::array();
};

}  // namespace tessera
