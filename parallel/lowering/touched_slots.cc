#include "parallel/lowering/touched_slots.h"

#include <variant>

namespace tessera {

TouchedSlots touched_slots(const Instruction& instruction) {
  TouchedSlots t;
  struct {
    TouchedSlots& t;
    void operator()(const KernelInst& i) {
      for (const SlotRef& ref : i.inputs) t.reads.push_back(ref.slot);
      for (const SlotRef& ref : i.outputs) t.writes.push_back(ref.slot);
      t.writes.push_back(i.workspace.slot);
    }
    void operator()(const CollectiveInst& i) { t.reads.push_back(i.in.slot), t.writes.push_back(i.out.slot); }
    void operator()(const SendInst& i) { t.reads.push_back(i.in.slot); }
    void operator()(const RecvInst& i) { t.writes.push_back(i.out.slot); }
    void operator()(const CopyInst& i) { t.reads.push_back(i.in.slot), t.writes.push_back(i.out.slot); }
  } all{t};
  std::visit(all, instruction);
  std::erase(t.reads, -1);
  std::erase(t.writes, -1);
  return t;
}

}  // namespace tessera
