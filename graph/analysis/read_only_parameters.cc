#include "graph/analysis/read_only_parameters.h"

#include <algorithm>

namespace tessera {

namespace {

// Calls add(slot) for each written slot.
template <class Add>
struct Writes {
  Add call;

  void add(const SlotRef& ref) {
    if (ref.slot >= 0) call(static_cast<size_t>(ref.slot));
  }
  void operator()(const KernelInst& inst) {
    for (const SlotRef& out : inst.outputs) add(out);
    add(inst.workspace);
  }
  void operator()(const CollectiveInst& inst) { add(inst.out); }
  void operator()(const SendInst&) {}
  void operator()(const RecvInst& inst) { add(inst.out); }
  void operator()(const CopyInst& inst) { add(inst.out); }
};

}  // namespace

std::vector<bool> find_written_slots(const RankProgram& rank) {
  std::vector<bool> written(rank.slots.size());
  for (const EntryPoint& entry : rank.entries)
    for (const Instruction& instruction : entry.code)
      std::visit(Writes{[&](size_t slot) { written[slot] = true; }}, instruction);
  return written;
}

bool writes_parameter(const RankProgram& rank, const Instruction& instruction) {
  bool found = false;
  std::visit(Writes{[&](size_t slot) { found |= rank.slots[slot].kind == SlotKind::kParameter; }}, instruction);
  return found;
}

ReadOnlyParameters find_read_only_parameters(const RankProgram& rank) {
  const std::vector<bool> written = find_written_slots(rank);
  const auto is_read_only = [&](size_t slot) {
    return rank.slots[slot].kind == SlotKind::kParameter && !written[slot];
  };
  ReadOnlyParameters found;
  found.bytes = rank.arena_bytes;
  for (size_t slot = 0; slot < rank.slots.size(); ++slot)
    if (rank.slots[slot].tier == Tier::kDevice && rank.slots[slot].bytes > 0 && !is_read_only(slot))
      found.bytes = std::min(found.bytes, rank.slots[slot].offset);
  for (size_t slot = 0; slot < rank.slots.size(); ++slot) {
    const Slot& it = rank.slots[slot];
    if (it.tier == Tier::kDevice && it.bytes > 0 && is_read_only(slot) && it.offset + it.bytes <= found.bytes)
      found.slots.push_back(static_cast<int32_t>(slot));
  }
  if (found.slots.empty()) found.bytes = 0;
  return found;
}

}  // namespace tessera
