#include "engine/serving/scheduler/scheduler.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <optional>
#include <utility>

#include "graph/base/status.h"

namespace tessera {

namespace {

void insert(std::vector<Sequence*>& order, Sequence& sequence) {
  order.insert(std::ranges::upper_bound(order, &sequence, matters_more), &sequence);
}

// Whether the step computes, for a more important sequence, the tokens that follow the `found`
// cached ones (`full` of them in full pages), and enough of them to be worth waiting for.
bool is_being_computed(const Sequence& sequence, std::span<const PagePool::Content> contents, int64_t full,
                       int64_t found, std::span<const StepPart> parts) {
  constexpr int64_t kLeastAwaited = 16;
  const int64_t end = found + kLeastAwaited;
  if (end > sequence.reusable()) return false;
  const auto tokens_of = [&](const Sequence& it) {
    return std::span(it.tokens).subspan(static_cast<size_t>(full), static_cast<size_t>(end - full));
  };
  return std::ranges::any_of(parts, [&](const StepPart& part) {
    const Sequence& other = *part.sequence;
    return !other.is_decoding() && other.computed < end && other.size() >= end &&
           matters_more(&other, &sequence) && other.root == sequence.root &&
           other.contents.size() >= contents.size() &&
           (contents.empty() || other.contents[contents.size() - 1] == contents.back()) &&
           std::ranges::equal(tokens_of(other), tokens_of(sequence));
  });
}

// Tokens computed for `tokens` with padding to these step sizes, in one step or with full
// steps first. A further step counts as kStepTokens, since it reads the weights again.
int64_t padded_tokens(std::span<const int64_t> sizes, int64_t tokens) {
  constexpr int64_t kStepTokens = 16;
  const auto size = std::ranges::lower_bound(sizes, tokens);
  if (size == sizes.begin() || *size == tokens) return *size;
  const int64_t below = *std::prev(size);
  return std::min(*size, below + kStepTokens + padded_tokens(sizes, tokens - below));
}

}  // namespace

Scheduler::Scheduler(PagePool& pool, int64_t rows, bool shares, std::vector<int64_t> sizes, bool has_state, int64_t saved_rows)
    : pool_(pool), shares_(shares), has_state_(has_state), sizes_(std::move(sizes)), saved_rows_(saved_rows) {
  for (int64_t row = rows; row > 0; --row) free_rows_.push_back(static_cast<int32_t>(row - 1));
}

void Scheduler::add(Sequence& sequence) { insert(waiting_, sequence); }

void Scheduler::remove(Sequence& sequence) {
  std::erase(waiting_, &sequence);
  if (sequence.row) stop(sequence);
}

void Scheduler::restart() {
  while (!running_.empty()) {
    Sequence& sequence = *running_.back();
    stop(sequence);
    insert(waiting_, sequence);
    ++preemptions_;
  }
}

// Releases the pages, last first, so that beginnings of texts stay cached longest.
void Scheduler::stop(Sequence& sequence) {
  remember_last_page(sequence);
  take_snapshot(sequence);
  for (; !sequence.pages.empty(); sequence.pages.pop_back()) {
    if (std::ssize(sequence.pages) > sequence.first_window)
      pool_.windows().give_back(sequence.pages.back(), true);
    pool_.give_back(sequence.pages.back());
  }
  sequence.first_window = 0;
  sequence.contents.clear();
  sequence.computed = 0;
  sequence.drafts.clear();
  free_rows_.push_back(*sequence.row);
  sequence.row.reset();
  std::erase(running_, &sequence);
}

// Records the partly filled last page.
void Scheduler::remember_last_page(const Sequence& sequence) {
  const int64_t full = std::ssize(sequence.contents), first = full * pool_.page_size();
  const int64_t count = std::min(sequence.computed, sequence.findable) - first;
  if (!shares_ || count <= 0) return;
  pool_.remember_beginning(
      sequence.pages[static_cast<size_t>(full)], sequence.content(),
      std::span(sequence.tokens).subspan(static_cast<size_t>(first), static_cast<size_t>(count)));
}

Sequence* Scheduler::least_important(const Sequence& than) const {
  for (auto it = running_.rbegin(); it != running_.rend() && matters_more(&than, *it); ++it)
    if (std::ranges::find(planned_, *it) == planned_.end()) return *it;
  return nullptr;
}

// Adds a page from both pools; false, with nothing changed, if either is exhausted.
bool Scheduler::add_page(Sequence& sequence) {
  if (pool_.available() == 0 || pool_.windows().available() == 0) return false;
  const int32_t page = *pool_.take();
  const bool has_window = pool_.windows().take(page);
  TSR_CHECK(has_window, "there is a window page");
  sequence.pages.push_back(page);
  return true;
}

// Gives the sequence pages for its first `tokens` tokens, preempting less important sequences.
bool Scheduler::make_room(Sequence& sequence, int64_t tokens) {
  const int64_t wanted = pages_of(tokens);
  while (std::ssize(sequence.pages) < wanted) {
    if (add_page(sequence)) continue;
    Sequence* const least = least_important(sequence);
    if (least == nullptr) return false;
    stop(*least);
    insert(waiting_, *least);
    ++preemptions_;
  }
  return true;
}

// Whether the prefix's last page is copied rather than taken over:
// its other contents would be lost, and a page for the copy is free.
bool Scheduler::copies_rest(const CachedPrefix& prefix, int64_t wanted) const {
  if (!prefix.rest) return false;
  const bool is_whole = prefix.rest->common == prefix.rest->known;
  return pool_.has_user(prefix.rest->page) || (!is_whole && pool_.available() > wanted);
}

// Whether pages suffice for all tokens after the prefix,
// and window pages for a step of at most `budget` tokens.
bool Scheduler::has_room(const Sequence& sequence, const CachedPrefix& prefix, int64_t budget) const {
  const int64_t held = std::ssize(prefix.pages), wanted = pages_of(sequence.size()) - held;
  if (wanted > pool_.available()) return false;
  const int64_t of_step = pages_of(std::min(sequence.size(), prefix.size + budget)) - held;
  return of_step + (copies_rest(prefix, wanted) ? 1 : 0) <= pool_.windows().available();
}

// Gives the sequence a row and its cached prefix. Nothing changes if it should
// wait for another sequence's tokens of this step, or if pages are too few.
Scheduler::Admission Scheduler::admit(Sequence& sequence, std::span<const StepPart> parts, int64_t budget) {
  CachedPrefix prefix;
  if (shares_)
    prefix = CachedPrefix::find(pool_, PageIndex::root(sequence.root),
                                std::span(sequence.tokens).first(static_cast<size_t>(sequence.reusable())), has_state_);
  const int64_t full = std::ssize(prefix.pages) * pool_.page_size();
  const int64_t wanted = pages_of(sequence.size()) - std::ssize(prefix.pages);
  std::optional<Admission> refused;
  if (!has_room(sequence, prefix, budget)) refused = Admission::kNoRoom;
  if (shares_ && is_being_computed(sequence, prefix.contents, full, prefix.size, parts))
    refused = Admission::kAwaits;
  if (refused) {
    prefix.give_back(pool_);
    return *refused;
  }
  sequence.branches = {prefix.size, prefix.known, sequence.reusable()};
  plan_snapshots(sequence, prefix);
  sequence.pages = std::move(prefix.pages);
  sequence.contents = std::move(prefix.contents);
  sequence.first_window = prefix.first_window;
  sequence.computed = full;
  if (prefix.rest) begin_page(sequence, *prefix.rest, copies_rest(prefix, wanted));
  sequence.reused = sequence.computed;
  sequence.row = free_rows_.back();
  free_rows_.pop_back();
  if (prefix.snapshot) {
    pool_.snapshots().pin(*prefix.snapshot);
    state_copies_.push_back({*prefix.snapshot, *sequence.row});
  }
  insert(running_, sequence);
  return Admission::kAdmitted;
}

// Adds the next page with another page's first positions: by a copy, or by taking that page over.
void Scheduler::begin_page(Sequence& sequence, const PagePool::Beginning& beginning, bool copies) {
  WindowPages& windows = pool_.windows();
  if (!copies) {
    pool_.take_over(beginning.page, beginning.common);
    windows.hold(beginning.page);
    sequence.pages.push_back(beginning.page);
  } else {
    pool_.hold(beginning.page);  // so that `take` does not return it
    windows.hold(beginning.page);
    const bool has_page = add_page(sequence);
    TSR_CHECK(has_page, "there are as many pages as the sequence wants");
    const int32_t page = sequence.pages.back();
    copies_.push_back(
        {beginning.page, page, beginning.common, windows.page_of(beginning.page), windows.page_of(page)});
    windows.give_back(beginning.page, true);
    pool_.give_back(beginning.page);
  }
  sequence.computed += beginning.common;
}

// Releases the window pages that no remaining token sees.
// Pages at likely branch points stay cached longer.
void Scheduler::leave_windows(Sequence& sequence) {
  WindowPages& windows = pool_.windows();
  const int64_t first = std::min(windows.first_page(sequence.computed), std::ssize(sequence.pages));
  for (int64_t& i = sequence.first_window; i < first; ++i) {
    const bool is_kept = std::ranges::any_of(
        sequence.branches, [&](int64_t size) { return windows.first_page(size) <= i && i < pages_of(size); });
    windows.give_back(sequence.pages[static_cast<size_t>(i)], is_kept);
  }
}

// The state is copied where the cached tokens end, which other texts continue otherwise, and at the end of the prompt: before
// its last token, which is computed again for its logits, and some tokens earlier, since templates end prompts with tokens that
// the next turn of a conversation may lack.
void Scheduler::plan_snapshots(Sequence& sequence, const CachedPrefix& prefix) const {
  constexpr int64_t kUnit = 16, kEnding = 8, kLong = 64;
  sequence.snapshots.clear();
  if (!has_state_ || !shares_) return;
  const int64_t end = sequence.size() - 1;
  std::vector<int64_t> sizes = {prefix.known, end};
  if (end - prefix.size >= kLong) sizes.push_back((end - kEnding) / kUnit * kUnit);
  std::ranges::sort(sizes);
  for (const int64_t size : sizes)
    if (size > prefix.size && size <= std::min(end, sequence.findable) &&
        (sequence.snapshots.empty() || sequence.snapshots.back() < size))
      sequence.snapshots.push_back(size);
}

// The number of tokens up to the next snapshot.
int64_t Scheduler::count_to_snapshot(const Sequence& sequence) const {
  const auto next = std::ranges::upper_bound(sequence.snapshots, sequence.computed);
  return next == sequence.snapshots.end() ? sequence.size() : *next - sequence.computed;
}

void Scheduler::take_snapshot(const Sequence& sequence) {
  const int64_t full = sequence.computed / pool_.page_size();
  if (!has_state_ || !shares_ || sequence.computed == 0 || sequence.computed > sequence.findable ||
      std::ssize(sequence.contents) != full)
    return;
  const auto tokens = std::span(sequence.tokens).first(static_cast<size_t>(sequence.computed));
  const auto row = pool_.snapshots().take(sequence.content(), tokens.subspan(static_cast<size_t>(full * pool_.page_size())));
  if (row) state_copies_.push_back({*sequence.row, *row});
}

// Reserves pages for as many drafts as fit without preemption; the rest are dropped.
int64_t Scheduler::reserve_drafts(Sequence& sequence, int64_t most) {
  const int64_t wanted = std::min(std::ssize(sequence.drafts), most);
  const auto room = [&] { return std::ssize(sequence.pages) * pool_.page_size() - sequence.size(); };
  while (room() < wanted && add_page(sequence)) {
  }
  const int64_t drafts = std::clamp<int64_t>(room(), 0, wanted);
  sequence.drafts.resize(static_cast<size_t>(drafts));
  return drafts;
}

// Moves prompt tokens to a later step if that reduces padding.
void Scheduler::trim(std::vector<StepPart>& parts) const {
  int64_t total = 0, singles = 0;
  for (const StepPart& part : parts) {
    total += part.count;
    singles += part.sequence->is_decoding();
  }
  const auto size = std::ranges::lower_bound(sizes_, total);
  if (size == sizes_.begin() || size == sizes_.end()) return;
  const int64_t below = *std::prev(size);
  int64_t left = total - below;
  if (below <= singles || below + padded_tokens(sizes_, singles + left) >= *size) return;
  for (auto part = parts.rbegin(); part != parts.rend() && left > 0; ++part) {
    if (part->sequence->is_decoding()) continue;
    const int64_t less = std::min(left, part->count);
    part->count -= less;
    left -= less;
  }
  std::erase_if(parts, [](const StepPart& part) { return part.count == 0; });
}

std::vector<StepPart> Scheduler::plan(int64_t budget, int64_t logits) {
  std::vector<StepPart> parts;
  planned_.clear();
  copies_.clear();
  pool_.snapshots().unpin();
  lacks_pages_ = false;
  const auto put = [&](Sequence& sequence, int64_t most) {
    int64_t count = std::min({most, budget, sequence.size() - sequence.computed, count_to_snapshot(sequence)});
    const int64_t wanted_from = std::max(sequence.logits_begin, sequence.computed);
    if (wanted_from < sequence.logits_end) count = std::min(count, wanted_from + logits - sequence.computed);
    if (count < 1 || !make_room(sequence, sequence.computed + count)) return;
    logits -= std::max<int64_t>(0, std::min(sequence.computed + count, sequence.logits_end) - wanted_from);
    parts.push_back({&sequence, sequence.computed, count});
    planned_.push_back(&sequence);
    budget -= count;
  };
  // The callback may preempt sequences, so it iterates over copies.
  const auto each = [](const std::vector<Sequence*>& order, auto body) {
    for (Sequence* const sequence : std::vector<Sequence*>(order)) body(*sequence);
  };
  each(running_, [&](Sequence& it) {
    if (!it.row || !it.is_decoding()) return;
    put(it, 1);
    if (it.drafts.empty() || parts.empty() || parts.back().sequence != &it) return;
    const int64_t drafts = reserve_drafts(it, std::min(budget, logits));
    if (has_state_ && drafts > 0) state_copies_.push_back({*it.row, saved_row(it)});
    parts.back().count += drafts;
    budget -= drafts;
    logits -= drafts;
  });
  each(running_, [&](Sequence& it) {
    if (it.row && !it.is_decoding()) put(it, budget);
  });
  // Sequences that wait for others' tokens are skipped while rows remain for all of them.
  for (size_t at = 0; budget > 0 && at < waiting_.size() && at < free_rows_.size();) {
    Sequence& next = *waiting_[at];
    const Admission admission = admit(next, parts, budget);
    if (admission == Admission::kNoRoom) {
      lacks_pages_ = true;
      break;
    }
    if (admission == Admission::kAwaits) {
      ++at;
      continue;
    }
    waiting_.erase(waiting_.begin() + static_cast<std::ptrdiff_t>(at));
    put(next, budget);
  }
  trim(parts);
  std::ranges::sort(parts, {}, [](const StepPart& part) { return *part.sequence->row; });
  return parts;
}

void Scheduler::remember_full_pages(Sequence& sequence) {
  const auto size = static_cast<size_t>(pool_.page_size());
  const auto found = static_cast<size_t>(std::min(sequence.computed, sequence.findable));
  while ((sequence.contents.size() + 1) * size <= found) {
    const size_t page = sequence.contents.size();
    sequence.contents.push_back(pool_.remember(sequence.pages[page], sequence.content(),
                                               std::span(sequence.tokens).subspan(page * size, size)));
  }
}

void Scheduler::computed(const std::vector<StepPart>& parts) {
  for (const StepPart& part : parts) {
    Sequence& sequence = *part.sequence;
    const bool is_prompt = !sequence.is_decoding();
    sequence.computed += part.count - std::ssize(sequence.drafts);
    if (shares_) {
      remember_full_pages(sequence);
      // Other sequences may wait for a prompt's last page; generated tokens are recorded by full pages and at the end.
      if (is_prompt) remember_last_page(sequence);
    }
    if (std::ranges::binary_search(sequence.snapshots, sequence.computed)) take_snapshot(sequence);
    leave_windows(sequence);
  }
}

void Scheduler::accept(Sequence& sequence, int64_t right) {
  sequence.computed += right;
  sequence.drafts.clear();
  if (shares_) remember_full_pages(sequence);
  leave_windows(sequence);
}

void Scheduler::replay(Sequence& sequence) {
  --sequence.computed;  // the step's first token, which is no draft
  sequence.drafts.clear();
  state_copies_.push_back({saved_row(sequence), *sequence.row});
}

std::vector<Sequence*> Scheduler::decoding() const {
  const bool all = waiting_.empty() && std::ranges::all_of(running_, [](const Sequence* it) {
                     return it->is_decoding() || it->computed == it->size();  // which waits for its caller
                   });
  std::vector<Sequence*> decoding;
  if (all)
    std::ranges::copy_if(running_, std::back_inserter(decoding),
                         [](const Sequence* it) { return it->is_decoding(); });
  return decoding;
}

}  // namespace tessera
