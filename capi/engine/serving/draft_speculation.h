// DraftSpeculation: guesses of a draft model for the texts of a server: for which steps, and how many, by what they cost and
// bring. One thread at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "capi/engine/serving/draft_ledger.h"
#include "capi/engine/serving/draft_model.h"
#include "capi/engine/serving/served_text.h"

namespace tessera {

class DraftSpeculation {
 public:
  // always: guesses are made whether they pay or not.
  DraftSpeculation(std::unique_ptr<DraftModel> model, bool always)
      : model_(std::move(model)), always_(always) {}

  // Seconds of the server's step with so many tokens and the logits of all; nothing before one was measured.
  using StepSeconds = std::function<std::optional<double>(int64_t)>;
  // Sets the guesses of sequences that are decoded: at most `most` each, `room` in all.
  Status guess(std::span<ServedText* const> texts, size_t most, size_t room, const StepSeconds& step_seconds);
  // The step that this was for took `seconds`, for `certain` tokens that needed no guess, and `right` others.
  void note_step(double seconds, int64_t certain, int64_t right);

  double seconds() const { return seconds_; }  // of drafting, since the beginning
  DraftModel& model() { return *model_; }

 private:
  size_t choose_most(std::span<ServedText* const> texts, std::span<const size_t> wanted,
                     const StepSeconds& step_seconds) const;

  const std::unique_ptr<DraftModel> model_;
  const bool always_;
  DraftLedger ledger_;
  double seconds_ = 0;
  // For the next step, where it has guesses: the seconds of a step without them, and those that drafting took.
  struct Drafted {
    double plain_s, draft_s, catch_up_s;
  };
  std::optional<Drafted> drafted_;
};

}  // namespace tessera
