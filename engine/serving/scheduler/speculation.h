// Speculation: tokens that are guessed for the texts of a server, by a draft model or by what they repeat: for which steps, and
// how many, by what they cost and bring. Which tokens come out does not depend on it. One thread at a time.
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
  // model: null: drafts are what followed before in a text. always: they are made whether they pay or not.
  Speculation(std::unique_ptr<DraftModel> model, bool always) : model_(std::move(model)), always_(always) {}

  // Seconds of the server's step with so many tokens and the logits of all; nothing before one was measured.
  using StepSeconds = std::function<std::optional<double>(int64_t)>;
  // Sets the drafts of sequences that are decoded: at most `most` each, `room` in all.
  Status propose_drafts(std::span<ServedText* const> texts, size_t most, size_t room, const StepSeconds& step_seconds);
  // The step that this was for took `seconds`, for `certain` tokens that needed no guess, and `right` others.
  void note_step(double seconds, int64_t certain, int64_t right);

  double seconds() const { return seconds_; }  // of drafting, since the beginning
  DraftModel* model() { return model_.get(); }

 private:
  // What there is to guess, or was guessed already, of each text.
  std::vector<size_t> count_drafts(std::span<ServedText* const> texts, size_t most, size_t room) const;
  size_t choose_most(std::span<ServedText* const> texts, std::span<const size_t> offered,
                     const StepSeconds& step_seconds) const;
  // So many drafts for a text, and what the draft model took; nothing where the time says little of others.
  struct Drafted {
    double seconds = 0, catch_up_seconds = 0;
  };
  Result<std::optional<Drafted>> draft(std::span<ServedText* const> texts, std::span<const size_t> counts);

  const std::unique_ptr<DraftModel> model_;
  const bool always_;
  DraftBackoff backoff_;
  double seconds_ = 0;
  // For the next step, where it has guesses: the seconds of a step without them, and those that drafting took.
  struct DraftedStep {
    double plain_s;
    Drafted drafted;
  };
  std::optional<DraftedStep> drafted_step_;
};

}  // namespace tessera
