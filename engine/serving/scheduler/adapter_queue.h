// AdapterQueue: sequences that wait for their adapter's slot before they are
// scheduled. Strict priority order, so that no sequence starves. One thread at a time.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/serving/adapters/adapter_slots.h"
#include "engine/serving/scheduler/scheduler.h"
#include "engine/serving/texts/sequence.h"

namespace tessera {

class AdapterQueue {
 public:
  explicit AdapterQueue(AdapterSlots& slots) : slots_(slots) {}

  // Adds a sequence with an adapter; it must outlive its removal.
  void add(Sequence& sequence);
  // Pins slots for waiting sequences and schedules these. If no slot is free,
  // less important sequences without a row release theirs. Call between runs.
  Status admit(Scheduler& scheduler, Session& session);
  // Removes an ended sequence that the scheduler no longer has; no effect without an adapter.
  void remove(Sequence& sequence);

  int64_t waiting() const { return static_cast<int64_t>(waiting_.size()); }

 private:
  bool take_slot_for(const Sequence& sequence, Scheduler& scheduler);

  AdapterSlots& slots_;
  std::vector<Sequence*> waiting_, scheduled_;  // the most important first
};

}  // namespace tessera
