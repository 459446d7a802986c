// Speculation: drafts for decoding texts, from a draft model or from repetitions in the text. It chooses steps
// and numbers of drafts by their cost and yield. The generated tokens do not depend on it. One thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "engine/serving/scheduler/draft_backoff.h"
#include "engine/serving/scheduler/draft_model.h"
#include "engine/serving/texts/served_text.h"

namespace tessera {

class Speculation {
 public:
  // model: null: n-gram drafts. always: drafts even if they do not pay.
  Speculation(std::unique_ptr<DraftModel> model, bool always) : model_(std::move(model)), always_(always) {}

  // Seconds of a server step with this many tokens, with logits of all; nullopt if not measured yet.
  using StepSeconds = std::function<std::optional<double>(int64_t)>;
  // Sets the drafts of decoding sequences: at most `most` each and `room` in all.
  Status propose_drafts(std::span<ServedText* const> texts, size_t most, size_t room, const StepSeconds& step_seconds);
  // Passes hidden states of a step to the draft block.
  Status observe(std::span<const DraftModel::Observation> seen);
  // Records the step: `certain` tokens without drafts, and `right` accepted drafts, in `seconds`.
  void note_step(double seconds, int64_t certain, int64_t right);

  double seconds() const { return seconds_; }  // drafting time since the beginning
  DraftModel* model() { return model_.get(); }

 private:
  // The number of drafts available for each text; n-gram drafts are already proposed.
  std::vector<size_t> count_drafts(std::span<ServedText* const> texts, size_t most, size_t room) const;
  size_t choose_most(std::span<ServedText* const> texts, std::span<const size_t> offered,
                     const StepSeconds& step_seconds) const;
  // Proposes `counts` drafts; returns the draft model's time, nullopt if it was a slow first run.
  struct Drafted {
    double seconds = 0, catch_up_seconds = 0;
  };
  Result<std::optional<Drafted>> draft(std::span<ServedText* const> texts, std::span<const size_t> counts);

  const std::unique_ptr<DraftModel> model_;
  const bool always_;
  DraftBackoff backoff_;
  double seconds_ = 0;
  // The next step, if it has drafts: the time of a plain step, and the drafting time.
  struct DraftedStep {
    double plain_s;
    Drafted drafted;
  };
  std::optional<DraftedStep> drafted_step_;
};

}  // namespace tessera
