#include "capi/engine/serving/draft_speculation.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace tessera {

// The number of guesses, at most so many of each text, by which a token is likely to take the least time. What is not
// known is taken for fast, so that it is tried.
size_t DraftSpeculation::choose_most(std::span<ServedText* const> texts, std::span<const size_t> wanted,
                                     const StepSeconds& step_seconds) const {
  const auto certain = std::ssize(texts);
  const double draft_s = model_->step_seconds(certain).value_or(0), plain_s = *step_seconds(certain);
  const size_t largest = std::ranges::max(wanted);
  size_t best = largest;
  double best_rate = 0;
  for (size_t most = 1; most <= largest; ++most) {
    int64_t tokens = certain;
    auto expected = static_cast<double>(certain);
    for (size_t i = 0; i < texts.size(); ++i) {
      const size_t guesses = std::min(most, wanted[i]);
      tokens += static_cast<int64_t>(guesses);
      expected += texts[i]->expected_right(guesses);
    }
    const double seconds = step_seconds(tokens).value_or(plain_s) + static_cast<double>(most) * draft_s;
    if (expected < best_rate * seconds) continue;
    best_rate = expected / seconds;
    best = most;
  }
  return best;
}

Status DraftSpeculation::guess(std::span<ServedText* const> texts, size_t most, size_t room,
                               const StepSeconds& step_seconds) {
  drafted_.reset();
  const std::optional<double> plain_s = step_seconds(std::ssize(texts));
  if (!always_ && (!plain_s || !ledger_.wants_guesses())) return {};
  std::vector<size_t> wanted;
  for (ServedText* const text : texts) {
    wanted.push_back(text->wanted_guesses(std::min(most, room)));
    room -= wanted.back();
  }
  if (std::ranges::max(wanted) == 0) return {};
  if (!always_) most = choose_most(texts, wanted, step_seconds);
  std::vector<DraftModel::Text> asked;
  for (size_t i = 0; i < texts.size(); ++i)
    asked.push_back({*texts[i]->sequence.row, texts[i]->sequence.tokens, std::min(wanted[i], most)});
  // Its steps are of one token of each text, or of two where all guesses were right.
  const bool is_draft_known =
      model_->step_seconds(std::ssize(texts)) || model_->step_seconds(2 * std::ssize(texts));
  TSR_ASSIGN_OR_RETURN(DraftModel::Proposal proposal, model_->propose(asked));
  int64_t tokens = std::ssize(texts);
  for (size_t i = 0; i < texts.size(); ++i) {
    tokens += std::ssize(proposal.guesses[i]);
    texts[i]->sequence.guesses = std::move(proposal.guesses[i]);
  }
  seconds_ += proposal.seconds;
  // First runs of entry points are slow ones, and say nothing of others.
  if (is_draft_known && step_seconds(tokens))
    drafted_ = {plain_s.value_or(0), proposal.seconds, proposal.catch_up_seconds};
  return {};
}

void DraftSpeculation::note_step(double seconds, int64_t certain, int64_t right) {
  if (!drafted_) return ledger_.note_plain(seconds);
  const Drafted it = *std::exchange(drafted_, std::nullopt);
  const double more = static_cast<double>(right) / static_cast<double>(certain);
  ledger_.note_guessed(it.plain_s * (1 + more), seconds + it.draft_s, it.catch_up_s);
}

}  // namespace tessera
