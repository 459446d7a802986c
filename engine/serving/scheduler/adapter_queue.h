// AdapterQueue: sequences that wait for a slot of their adapter, before they are scheduled. The most important one gets the
// next slot; those behind it wait, so that it is not passed for ever. One thread at a time.
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

  // A sequence with an adapter; it must outlive its removal.
  void add(Sequence& sequence);
  // Gives slots to as many sequences as there are slots for, and adds those to the scheduler. Where there are none,
  // sequences that are scheduled, have no row yet and matter less give theirs back. Between runs.
  Status admit(Scheduler& scheduler, Session& session);
  // A sequence has ended, and the scheduler does not have it any more; nothing where it has no adapter.
  void remove(Sequence& sequence);

  int64_t waiting() const { return static_cast<int64_t>(waiting_.size()); }

 private:
  bool take_slot_for(const Sequence& sequence, Scheduler& scheduler);

  AdapterSlots& slots_;
  std::vector<Sequence*> waiting_, scheduled_;  // the most important first
};

}  // namespace tessera
