#include "parallel/composition/live_bytes.h"

#include "parallel/lowering/touched_slots.h"

namespace tessera {

LiveBytes::LiveBytes(const RankProgram& rank, std::span<const size_t> order,
                       std::span<const LiveRange> live_ranges)
    : during_(order.size()), before_(order.size() + 1) {
  std::vector<std::vector<const LiveRange*>> ranges(rank.slots.size());
  for (const LiveRange& it : live_ranges) ranges[static_cast<size_t>(it.slot)].push_back(&it);
  const auto place_of = [&](size_t slot, size_t instruction) {
    if (const Tier tier = rank.slots[slot].tier; tier != Tier::kDevice) return BytesByCause::place_of(tier);
    for (const LiveRange* it : ranges[slot])
      if (std::cmp_less_equal(it->first, instruction) && std::cmp_less_equal(instruction, it->last))
        return static_cast<size_t>(it->cause);
    return static_cast<size_t>(MemoryCause::kTransient);
  };
  struct Held {
    size_t place = 0, last = SIZE_MAX;
  };
  std::vector<Held> held(rank.slots.size());
  for (size_t moment = 0; moment < order.size(); ++moment) {
    const TouchedSlots slots = touched_slots(rank.entries[0].code[order[moment]]);
    for (const std::vector<int32_t>* all : {&slots.reads, &slots.writes})
      for (const int32_t touched : *all) {
        const auto s = static_cast<size_t>(touched);
        const Slot& slot = rank.slots[s];
        if (slot.kind != SlotKind::kTransient && slot.kind != SlotKind::kWorkspace) continue;
        if (held[s].last != SIZE_MAX) during_[moment].at[held[s].place] -= slot.bytes;
        held[s] = {place_of(s, order[moment]), moment};
        during_[moment].at[held[s].place] += slot.bytes;
      }
  }
  // Changes take effect here.
  for (size_t s = 0; s < held.size(); ++s)
    if (held[s].last != SIZE_MAX) before_[held[s].last + 1].at[held[s].place] -= rank.slots[s].bytes;
  for (size_t moment = 0; moment < order.size(); ++moment) {
    during_[moment] += before_[moment];
    before_[moment + 1] += during_[moment];
  }
}

}  // namespace tessera
