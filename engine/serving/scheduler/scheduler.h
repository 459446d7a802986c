// Scheduler: which tokens of which sequences a step computes. Sequences that run go on, one token each; what is left of the
// step's tokens goes to prompts, in chunks; then waiting ones are admitted, while there are rows and pages for all that they
// have to compute. Where pages run out, the sequence that matters least gives back its own and waits, to be computed again
// ("recompute" of vLLM; Kwon et al., 2023). A sequence begins with what pages hold of it, to the token; one whose next
// tokens are just being computed for another waits for them. Of layers with a window a sequence holds the pages that its next
// token sees, and gives back what falls behind. One thread at a time.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/serving/pages/cached_prefix.h"
#include "engine/serving/pages/page_pool.h"
#include "engine/serving/texts/sequence.h"

namespace tessera {

// Tokens [first, first + count) of a sequence and of its drafts behind them.
struct StepPart {
  Sequence* sequence;
  int64_t first, count;
};

class Scheduler {
 public:
  // rows: sequences at once. Prefixes are shared while `shares`. sizes: tokens of a step, ascending, to which it is padded;
  // none: any number.
  Scheduler(PagePool& pool, int64_t rows, bool shares, std::vector<int64_t> sizes = {});

  // From here on the sequence is scheduled, until it is removed; it must outlive that. Its tokens fit the pool alone.
  void add(Sequence& sequence);
  // Its pages are free from here on.
  void remove(Sequence& sequence);

  // Drops the contents of all pages: running sequences wait again, to be computed from their tokens.
  void restart();

  // Parts of at most `budget` tokens in all, each sequence once; empty where there is nothing to compute. Every part has
  // its pages. The sequences that run come first, in the order of their rows. `logits`: tokens in [logits_begin,
  // logits_end) of their sequences, at most.
  std::vector<StepPart> plan(int64_t budget, int64_t logits);
  // Of that plan, in this order and before it is computed: a source may have been given to another use since.
  std::span<const PageCopy> copies() const { return copies_; }
  // The parts that `plan` returned have been computed: what is in their pages can be found from here on.
  void computed(const std::vector<StepPart>& parts);
  // The first `right` drafts became tokens of the sequence, whose others are dropped.
  void accept(Sequence& sequence, int64_t right);

  // Sequences that are computed a token a step; empty where there are prompts to compute as well.
  std::vector<Sequence*> decoding() const;

  // Whether, by the last plan, those that wait have no row or no pages to begin with.
  bool is_full() const { return !waiting_.empty() && (free_rows_.empty() || lacks_pages_); }
  int64_t running() const { return static_cast<int64_t>(running_.size()); }
  int64_t waiting() const { return static_cast<int64_t>(waiting_.size()); }
  int64_t preemptions() const { return preemptions_; }

 private:
  enum class Admission : uint8_t { kAdmitted, kAwaits, kNoRoom };
  // Number of pages that so many tokens fill.
  int64_t pages_of(int64_t tokens) const { return (tokens + pool_.page_size() - 1) / pool_.page_size(); }
  bool add_page(Sequence& sequence);
  bool make_room(Sequence& sequence, int64_t tokens);
  bool has_room(const Sequence& sequence, const CachedPrefix& prefix, int64_t budget) const;
  bool copies_rest(const CachedPrefix& prefix, int64_t wanted) const;
  Admission admit(Sequence& sequence, std::span<const StepPart> parts, int64_t budget);
  void begin_page(Sequence& sequence, const PagePool::Beginning& beginning, bool copies);
  void leave_windows(Sequence& sequence);
  void stop(Sequence& sequence);
  void remember_full_pages(Sequence& sequence);
  int64_t reserve_drafts(Sequence& sequence, int64_t most);
  void remember_last_page(const Sequence& sequence);
  void trim(std::vector<StepPart>& parts) const;
  Sequence* least_important(const Sequence& than) const;

  PagePool& pool_;
  const bool shares_;
  const std::vector<int64_t> sizes_;
  std::vector<int32_t> free_rows_;  // the last one is used next
  std::vector<Sequence*> running_;  // the most important first
  std::vector<Sequence*> waiting_;  // likewise
  std::vector<Sequence*> planned_;  // of the present plan: they keep their pages
  std::vector<PageCopy> copies_;    // of the present plan
  bool lacks_pages_ = false;        // likewise: for the next one that waits
  int64_t preemptions_ = 0;
};

}  // namespace tessera
