#include "engine/serving/scheduler/speculation.h"

#include <algorithm>
#include <utility>

namespace tessera {

std::vector<size_t> Speculation::count_drafts(std::span<ServedText* const> texts, size_t most,
                                          size_t room) const {
  std::vector<size_t> counts;
  for (ServedText* const text : texts) {
    const size_t few = std::min(most, room);
    if (model_ == nullptr) text->sequence.drafts = text->propose_drafts(few);
    counts.push_back(model_ == nullptr ? text->sequence.drafts.size() : text->draft_limit(few));
    room -= counts.back();
  }
  return counts;
}

// The number of drafts per text that minimizes the expected time per
// token. An unmeasured step counts as fast, so that it is tried.
size_t Speculation::choose_most(std::span<ServedText* const> texts, std::span<const size_t> offered,
                                const StepSeconds& step_seconds) const {
  const auto certain = std::ssize(texts);
  const double plain_s = *step_seconds(certain);
  const double draft_s = model_ == nullptr ? 0 : model_->step_seconds(certain).value_or(0);
  const size_t largest = std::ranges::max(offered);
  size_t best = largest;
  double best_rate = 0;
  for (size_t most = 1; most <= largest; ++most) {
    int64_t tokens = certain;
    auto expected = static_cast<double>(certain);
    for (size_t i = 0; i < texts.size(); ++i) {
      const size_t drafts = std::min(most, offered[i]);
      tokens += static_cast<int64_t>(drafts);
      expected += texts[i]->expected_accepted(drafts);
    }
    const double seconds = step_seconds(tokens).value_or(plain_s) + static_cast<double>(most) * draft_s;
    if (expected < best_rate * seconds) continue;
    best_rate = expected / seconds;
    best = most;
  }
  return best;
}

Result<std::optional<Speculation::Drafted>> Speculation::draft(std::span<ServedText* const> texts,
                                                               std::span<const size_t> counts) {
  if (model_ == nullptr) {
    for (size_t i = 0; i < texts.size(); ++i) texts[i]->sequence.drafts.resize(counts[i]);
    return std::optional(Drafted{});
  }
  std::vector<DraftModel::Text> asked;
  for (size_t i = 0; i < texts.size(); ++i)
    asked.push_back({*texts[i]->sequence.row, texts[i]->sequence.number, texts[i]->sequence.tokens, counts[i]});
  // A step has one token per text, or two if all drafts were accepted.
  const bool is_known =
      model_->step_seconds(std::ssize(texts)) || model_->step_seconds(2 * std::ssize(texts));
  TSR_ASSIGN_OR_RETURN(DraftModel::Proposal proposal, model_->propose(asked));
  for (size_t i = 0; i < texts.size(); ++i) texts[i]->sequence.drafts = std::move(proposal.drafts[i]);
  seconds_ += proposal.seconds;
  if (!is_known) return std::optional<Drafted>();
  return std::optional(Drafted{proposal.seconds, proposal.catch_up_seconds});
}

Status Speculation::propose_drafts(std::span<ServedText* const> texts, size_t most, size_t room,
                          const StepSeconds& step_seconds) {
  drafted_step_.reset();
  const std::optional<double> plain_s = step_seconds(std::ssize(texts));
  if (!always_ && (!plain_s || !backoff_.is_drafting())) return {};
  std::vector<size_t> counts = count_drafts(texts, most, room);
  if (std::ranges::max(counts) == 0) return {};
  if (!always_) most = choose_most(texts, counts, step_seconds);
  for (size_t& count : counts) count = std::min(count, most);
  TSR_ASSIGN_OR_RETURN(const std::optional<Drafted> drafted, draft(texts, counts));
  int64_t tokens = 0;
  for (const ServedText* const text : texts) tokens += 1 + std::ssize(text->sequence.drafts);
  // The first run of an entry is slow and is not counted.
  if (drafted && step_seconds(tokens)) drafted_step_ = {plain_s.value_or(0), *drafted};
  return {};
}

Status Speculation::observe(std::span<const DraftModel::Observation> seen) {
  TSR_ASSIGN_OR_RETURN(const double seconds, model_->observe(seen));
  seconds_ += seconds;
  return {};
}

void Speculation::note_step(double seconds, int64_t certain, int64_t right) {
  if (!drafted_step_) return backoff_.record_plain(seconds);
  const DraftedStep it = *std::exchange(drafted_step_, std::nullopt);
  const double more = static_cast<double>(right) / static_cast<double>(certain);
  backoff_.record_drafted(it.plain_s * (1 + more), seconds + it.drafted.seconds, it.drafted.catch_up_seconds);
}

}  // namespace tessera
