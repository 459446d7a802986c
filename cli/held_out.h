// HeldOut: evaluations of a training on its held-out rows, the best of them, and when to stop for them.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>

#include "command.h"

namespace cli {

struct HeldOutOptions {
  int64_t every = 0;  // steps between evaluations; 0: one at the end
  bool keep_best = false;
  int64_t patience = 0;  // evaluations in a row without an improvement that end the training; 0: any number
  double min_delta = 0;  // by how much the loss must fall to count as an improvement
};
void add_held_out_options(CLI::App& command, HeldOutOptions& options);

// An evaluation as tsr_trainer_evaluate_all has it: {"loss", "perplexity", "accuracy", ...}.
Json evaluate(const Trainer& trainer);
// "loss 2.31 nats a token, perplexity 10.1, 45.2 % of 1200 tokens predicted"
std::string evaluation_text(const Json& evaluation);

class HeldOut {
 public:
  // Throws for options that contradict each other. `is_held_out`: whether the data has such rows.
  HeldOut(const HeldOutOptions& options, bool is_held_out);

  bool is_due(int64_t step, int64_t steps) const {
    return options_.every > 0 && (step % options_.every == 0 || step == steps);
  }
  // Adds the evaluation of a step. True where it is the best so far.
  bool add(int64_t step, const Json& evaluation);
  bool is_stopped() const { return options_.patience > 0 && stale_ >= options_.patience; }
  bool keeps_best() const { return options_.keep_best || options_.patience > 0; }
  // Step of the best evaluation; 0: none yet.
  int64_t best_step() const { return best_step_; }
  double best_loss() const { return best_; }
  void forget_best();
  // The step's evaluation where it was the last one; else null.
  Json last(int64_t step) const { return step == last_step_ ? last_ : Json(nullptr); }
  const Json& all() const { return all_; }  // of this process: [{"step", "loss", ...}]
  std::string stopped_text() const;

  // The state as a checkpoint's notes, and back from those of tsr_checkpoint_info.
  Options notes() const;
  void restore(const Json& notes);

 private:
  const HeldOutOptions options_;
  double best_ = std::numeric_limits<double>::infinity();
  double improved_ = best_;  // the loss that the next improvement is measured from
  int64_t best_step_ = 0, last_step_ = 0, stale_ = 0;
  Json last_, all_ = Json::array();
};

}  // namespace cli
