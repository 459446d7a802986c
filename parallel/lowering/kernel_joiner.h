// KernelJoiner: the code of one entry of a rank while kernels that follow one another become one. It knows
// who reads and writes each slot, and so what may change places and what may go.
#pragma once

#include <optional>
#include <vector>

#include "parallel/lowering/rank_builder.h"

namespace tessera {

class KernelJoiner {
 public:
  // Of entry number `index`, before its slots are placed.
  KernelJoiner(EntryPoint& entry, int32_t index, RankBuilder& builder);

  // What takes the place of several kernels.
  struct Joined {
    const OpDef* op;
    std::vector<Attr> attrs;
    std::vector<SlotRef> inputs, outputs;
    std::vector<TensorType> in_types, out_types;
    NodeId node;  // whose first result is the first here
  };

  size_t size() const { return code_.size(); }
  // Null where no kernel is, or is any more.
  const KernelInst* kernel_at(size_t at) const {
    return at < code_.size() && !gone_[at] ? std::get_if<KernelInst>(&code_[at]) : nullptr;
  }
  const KernelDesc& desc_of(const KernelInst& kernel) const {
    return program_.kernels[static_cast<size_t>(kernel.kernel)];
  }
  const OpDef& op_of(const KernelInst& kernel) const { return *desc_of(kernel).op; }

  // What a kernel is by itself, to be made more of.
  Joined as_joined(const KernelInst& kernel) const;

  // Places of the instructions that read the value's slot, one a reference.
  const std::vector<size_t>& readers_of(SlotRef ref) const { return readers_[static_cast<size_t>(ref.slot)]; }
  // The kernel that makes a value of this run alone, written once, whole.
  std::optional<size_t> maker_of(SlotRef ref) const;
  bool is_read_once(SlotRef ref) const { return is_value(ref) && readers_of(ref).size() == 1; }
  // The instruction at `from` could as well be at `to`, but for what the two have to do with each other.
  bool may_move(size_t from, size_t to) const;

  // One kernel in the place of `members[0]`, where the devices have it and it takes less time than all of
  // them.
  bool replace(const std::vector<size_t>& members, Joined joined);
  // Leaves out of the code what is gone; the last that is done.
  void finish();

 private:
  void note(size_t at);
  void forget(size_t at);
  bool is_value(SlotRef ref) const;
  bool on_device(const KernelInst& kernel) const;

  std::vector<Instruction>& code_;
  const int32_t index_;
  RankBuilder& builder_;
  RankProgram& program_;
  std::vector<std::vector<size_t>> readers_, writers_;  // by slot: places in the code, one a reference
  std::vector<bool> gone_;
};

}  // namespace tessera
