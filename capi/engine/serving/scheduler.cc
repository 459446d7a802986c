#include "capi/engine/serving/scheduler.h"

#include <algorithm>
#include <span>

namespace tessera {

namespace {

bool matters_more(const Sequence* a, const Sequence* b) {
  return a->priority != b->priority ? a->priority > b->priority : a->number < b->number;
}

void insert(std::vector<Sequence*>& order, Sequence& sequence) {
  order.insert(std::ranges::upper_bound(order, &sequence, matters_more), &sequence);
}

}  // namespace

Scheduler::Scheduler(PagePool& pool, int64_t rows, bool shares) : pool_(pool), shares_(shares) {
  for (int64_t row = rows; row > 0; --row) free_rows_.push_back(static_cast<int32_t>(row - 1));
}

void Scheduler::add(Sequence& sequence) { insert(waiting_, sequence); }

void Scheduler::remove(Sequence& sequence) {
  std::erase(waiting_, &sequence);
  if (sequence.row) stop(sequence);
}

// Its pages become free, the last ones first: what begins texts is kept for longest.
void Scheduler::stop(Sequence& sequence) {
  for (; !sequence.pages.empty(); sequence.pages.pop_back()) pool_.give_back(sequence.pages.back());
  sequence.contents.clear();
  sequence.computed = 0;
  free_rows_.push_back(*sequence.row);
  sequence.row.reset();
  std::erase(running_, &sequence);
}

Sequence* Scheduler::least_important(const Sequence& than) const {
  for (auto it = running_.rbegin(); it != running_.rend() && matters_more(&than, *it); ++it)
    if (std::ranges::find(planned_, *it) == planned_.end()) return *it;
  return nullptr;
}

// Gives the sequence pages for its first `tokens` tokens, if need be those of others that matter less.
bool Scheduler::make_room(Sequence& sequence, int64_t tokens) {
  const int64_t wanted = (tokens + pool_.page_size() - 1) / pool_.page_size();
  while (std::ssize(sequence.pages) < wanted) {
    if (const auto page = pool_.take()) {
      sequence.pages.push_back(*page);
      continue;
    }
    Sequence* const least = least_important(sequence);
    if (least == nullptr) return false;
    stop(*least);
    insert(waiting_, *least);
    ++preemptions_;
  }
  return true;
}

// Gives the sequence a row and shares the pages of its beginning that are computed already. False, and nothing changed,
// where there is no row or there are too few pages for the rest.
bool Scheduler::admit(Sequence& sequence) {
  if (free_rows_.empty()) return false;
  PagePool::Content before = PagePool::kNothing;
  const std::span<const int32_t> tokens(sequence.tokens);
  const auto size = static_cast<size_t>(pool_.page_size());
  // The last token is always computed, because its logits are wanted.
  // So are those whose logits are wanted.
  const size_t most = sequence.logits_begin < sequence.logits_end ? static_cast<size_t>(sequence.logits_begin)
                                                                  : tokens.size() - 1;
  for (size_t at = 0; shares_ && at + size <= most; at += size) {
    const auto found = pool_.find(before, tokens.subspan(at, size));
    if (!found) break;
    before = found->content;
    sequence.pages.push_back(found->page);
    sequence.contents.push_back(before);
  }
  const int64_t wanted = (sequence.size() + pool_.page_size() - 1) / pool_.page_size();
  if (wanted - std::ssize(sequence.pages) > pool_.available()) {
    for (; !sequence.pages.empty(); sequence.pages.pop_back()) pool_.give_back(sequence.pages.back());
    sequence.contents.clear();
    return false;
  }
  sequence.reused = sequence.computed = std::ssize(sequence.pages) * pool_.page_size();
  sequence.row = free_rows_.back();
  free_rows_.pop_back();
  insert(running_, sequence);
  return true;
}

std::vector<StepPart> Scheduler::plan(int64_t budget, int64_t logits) {
  std::vector<StepPart> parts;
  planned_.clear();
  const auto put = [&](Sequence& sequence, int64_t most) {
    int64_t count = std::min({most, budget, sequence.size() - sequence.computed});
    const int64_t wanted_from = std::max(sequence.logits_begin, sequence.computed);
    if (wanted_from < sequence.logits_end) count = std::min(count, wanted_from + logits - sequence.computed);
    if (count < 1 || !make_room(sequence, sequence.computed + count)) return;
    logits -= std::max<int64_t>(0, std::min(sequence.computed + count, sequence.logits_end) - wanted_from);
    parts.push_back({&sequence, sequence.computed, count});
    planned_.push_back(&sequence);
    budget -= count;
  };
  // A sequence may stop others behind it: copies of the order.
  const auto each = [](const std::vector<Sequence*>& order, auto body) {
    for (Sequence* const sequence : std::vector<Sequence*>(order)) body(*sequence);
  };
  each(running_, [&](Sequence& it) {
    if (it.row && it.is_decoding()) put(it, 1);
  });
  each(running_, [&](Sequence& it) {
    if (it.row && !it.is_decoding()) put(it, budget);
  });
  while (budget > 0 && !waiting_.empty()) {
    Sequence& first = *waiting_.front();
    if (!admit(first)) break;
    waiting_.erase(waiting_.begin());
    put(first, budget);
  }
  std::ranges::sort(parts, {}, [](const StepPart& part) { return *part.sequence->row; });
  return parts;
}

void Scheduler::computed(const std::vector<StepPart>& parts) {
  const auto size = static_cast<size_t>(pool_.page_size());
  for (const StepPart& part : parts) {
    Sequence& sequence = *part.sequence;
    sequence.computed += part.count;
    if (!shares_) continue;
    while ((sequence.contents.size() + 1) * size <= static_cast<size_t>(sequence.computed)) {
      const size_t page = sequence.contents.size();
      const auto before = page == 0 ? PagePool::kNothing : sequence.contents.back();
      sequence.contents.push_back(pool_.remember(sequence.pages[page], before,
                                                 std::span(sequence.tokens).subspan(page * size, size)));
    }
  }
}

}  // namespace tessera
