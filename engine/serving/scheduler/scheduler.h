// Scheduler: chooses the tokens of each step ("continuous batching"). Running sequences get
// one token each; the remaining budget goes to prompts, in chunks; then waiting sequences are
// admitted, if rows and pages suffice for all their tokens. When pages run out, the least
// important sequence is preempted and later recomputed (vLLM; Kwon et al., 2023). A sequence
// starts from its cached prefix; if another sequence is computing its next tokens, it waits
// for them. Window pages are retained for the next token's window only. One thread at a time.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "engine/serving/pages/cached_prefix.h"
#include "engine/serving/pages/page_pool.h"
#include "engine/serving/texts/sequence.h"

namespace tessera {

// StepPart: tokens [first, first + count) of a sequence and its drafts.
struct StepPart {
  Sequence* sequence;
  int64_t first, count;
};

class Scheduler {
 public:
  // rows: running sequences at most. shares: prefixes are shared. sizes: step sizes, ascending, to which steps are padded;
  // empty: any. has_state: layers carry state from token to token, so that a prefix ends at one of the pool's snapshots.
  // saved_rows: the first of the rows that keep the state of sequences with drafts before a step.
  Scheduler(PagePool& pool, int64_t rows, bool shares, std::vector<int64_t> sizes = {}, bool has_state = false,
            int64_t saved_rows = 0);

  // Schedules the sequence until `remove`; it must live that long, and its tokens must fit the pool.
  void add(Sequence& sequence);
  // Releases the sequence's pages.
  void remove(Sequence& sequence);

  // Drops all cached pages; running sequences wait and are recomputed.
  void restart();

  // Returns the next step's parts, at most `budget` tokens, each sequence once, running
  // ones first by row; empty: nothing to compute. All parts have their pages. `logits`:
  // the most rows of logits, counted over [logits_begin, logits_end) of the sequences.
  std::vector<StepPart> plan(int64_t budget, int64_t logits);
  // Copies to run, in this order, before the plan; a source page may be reused by it.
  std::span<const PageCopy> copies() const { return copies_; }
  // Copies of state to run, in this order, before the plan; empties the list.
  std::vector<StateCopy> take_state_copies() { return std::exchange(state_copies_, {}); }
  // Records the pages of the computed parts.
  void computed(const std::vector<StepPart>& parts);
  // Appends the first `right` drafts to the sequence and drops the others.
  void accept(Sequence& sequence, int64_t right);
  // Drops the drafts of a sequence whose layers carry state: the state before the step is restored, and the step's tokens up to
  // the last right one are computed again.
  void replay(Sequence& sequence);

  // Returns the sequences that decode one token a step; empty while prompts are computed.
  std::vector<Sequence*> decoding() const;

  // Whether the last plan left waiting sequences without a row or pages.
  bool is_full() const { return !waiting_.empty() && (free_rows_.empty() || lacks_pages_); }
  int64_t running() const { return static_cast<int64_t>(running_.size()); }
  int64_t waiting() const { return static_cast<int64_t>(waiting_.size()); }
  int64_t preemptions() const { return preemptions_; }

 private:
  enum class Admission : uint8_t { kAdmitted, kAwaits, kNoRoom };
  // Number of pages for `tokens` tokens.
  int64_t pages_of(int64_t tokens) const { return (tokens + pool_.page_size() - 1) / pool_.page_size(); }
  bool add_page(Sequence& sequence);
  bool make_room(Sequence& sequence, int64_t tokens);
  bool has_room(const Sequence& sequence, const CachedPrefix& prefix, int64_t budget) const;
  bool copies_rest(const CachedPrefix& prefix, int64_t wanted) const;
  Admission admit(Sequence& sequence, std::span<const StepPart> parts, int64_t budget);
  void begin_page(Sequence& sequence, const PagePool::Beginning& beginning, bool copies);
  void leave_windows(Sequence& sequence);
  void plan_snapshots(Sequence& sequence, const CachedPrefix& prefix) const;
  int64_t count_to_snapshot(const Sequence& sequence) const;
  void take_snapshot(const Sequence& sequence);
  int32_t saved_row(const Sequence& sequence) const { return static_cast<int32_t>(saved_rows_ + *sequence.row); }
  void stop(Sequence& sequence);
  void remember_full_pages(Sequence& sequence);
  int64_t reserve_drafts(Sequence& sequence, int64_t most);
  void remember_last_page(const Sequence& sequence);
  void trim(std::vector<StepPart>& parts) const;
  Sequence* least_important(const Sequence& than) const;

  PagePool& pool_;
  const bool shares_, has_state_;
  const std::vector<int64_t> sizes_;
  const int64_t saved_rows_;
  std::vector<int32_t> free_rows_;  // the last one is used next
  std::vector<Sequence*> running_;  // the most important first
  std::vector<Sequence*> waiting_;  // likewise
  std::vector<Sequence*> planned_;  // of the present plan: they keep their pages
  std::vector<PageCopy> copies_;    // of the present plan
  std::vector<StateCopy> state_copies_;  // since they were taken
  bool lacks_pages_ = false;        // likewise: too few for the next waiting sequence
  int64_t preemptions_ = 0;
};

}  // namespace tessera
