#include "engine/serving/scheduler/adapter_queue.h"

#include <algorithm>
#include <optional>
#include <utility>

namespace tessera {

namespace {

void enqueue(std::vector<Sequence*>& order, Sequence& sequence) {
  order.insert(std::ranges::upper_bound(order, &sequence, matters_more), &sequence);
}

}  // namespace

void AdapterQueue::add(Sequence& sequence) { enqueue(waiting_, sequence); }

// Unpins the slot of an adapter that is used only by less important sequences, none of which runs.
bool AdapterQueue::take_slot_for(const Sequence& sequence, Scheduler& scheduler) {
  const auto can_wait = [&](const Sequence* other) { return !other->row && matters_more(&sequence, other); };
  for (auto it = scheduled_.rbegin(); it != scheduled_.rend() && matters_more(&sequence, *it); ++it) {
    const int32_t slot = (*it)->adapter_slot;
    const auto uses_it = [&](const Sequence* other) { return other->adapter_slot == slot; };
    if (!std::ranges::all_of(scheduled_,
                             [&](const Sequence* other) { return !uses_it(other) || can_wait(other); }))
      continue;
    std::vector<Sequence*> others;
    std::erase_if(scheduled_, [&](Sequence* other) {
      if (uses_it(other)) others.push_back(other);
      return uses_it(other);
    });
    for (Sequence* const other : others) {
      scheduler.remove(*other);
      slots_.unpin(std::exchange(other->adapter_slot, -1));
      enqueue(waiting_, *other);
    }
    return true;
  }
  return false;
}

Status AdapterQueue::admit(Scheduler& scheduler, Session& session) {
  while (!waiting_.empty()) {
    Sequence& first = *waiting_.front();
    TSR_ASSIGN_OR_RETURN(const std::optional<int32_t> slot, slots_.pin(*first.adapter, session));
    if (!slot) {
      if (!take_slot_for(first, scheduler)) return {};
      continue;
    }
    first.adapter_slot = *slot;
    waiting_.erase(waiting_.begin());
    enqueue(scheduled_, first);
    scheduler.add(first);
  }
  return {};
}

void AdapterQueue::remove(Sequence& sequence) {
  if (sequence.adapter == nullptr) return;
  std::erase(waiting_, &sequence);
  std::erase(scheduled_, &sequence);
  if (sequence.adapter_slot >= 0) slots_.unpin(std::exchange(sequence.adapter_slot, -1));
}

}  // namespace tessera
