// KernelJoiner: the code of one entry of a rank during fusion of consecutive kernels. It knows
// readers and writers of each slot, and so which instructions may be reordered or removed.
#pragma once

#include <optional>
#include <vector>

#include "parallel/lowering/rank_builder.h"

namespace tessera {

class KernelJoiner {
 public:
  // For entry `index`, before its slots are placed.
  KernelJoiner(EntryPoint& entry, int32_t index, RankBuilder& builder);

  // Joined: the replacement of several kernels.
  struct Joined {
    const OpDef* op;
    std::vector<Attr> attrs;
    std::vector<SlotRef> inputs, outputs;
    std::vector<TensorType> in_types, out_types;
    NodeId node;  // its first result is the first here
  };

  size_t size() const { return code_.size(); }
  // Null if the instruction is no kernel, or was removed.
  const KernelInst* kernel_at(size_t at) const {
    return at < code_.size() && !gone_[at] ? std::get_if<KernelInst>(&code_[at]) : nullptr;
  }
  const KernelDesc& desc_of(const KernelInst& kernel) const {
    return program_.kernels[static_cast<size_t>(kernel.kernel)];
  }
  const OpDef& op_of(const KernelInst& kernel) const { return *desc_of(kernel).op; }

  // The kernel as a Joined, to be extended.
  Joined as_joined(const KernelInst& kernel) const;

  // Instructions that read the value's slot, one per reference.
  const std::vector<size_t>& readers_of(SlotRef ref) const { return readers_[static_cast<size_t>(ref.slot)]; }
  // The kernel that makes a value of this run, written once and whole.
  std::optional<size_t> maker_of(SlotRef ref) const;
  bool is_read_once(SlotRef ref) const { return is_value(ref) && readers_of(ref).size() == 1; }
  // Whether the instruction at `from` could be at `to`, apart from dependencies between the two.
  bool may_move(size_t from, size_t to) const;

  // Replaces `members` by one kernel at `members[0]`, if
  // the devices have it and it is faster than their sum.
  bool replace(const std::vector<size_t>& members, Joined joined);
  // Removes deleted instructions; the final step.
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
  std::vector<std::vector<size_t>> readers_, writers_;  // by slot: indices in the code, one per reference
  std::vector<bool> gone_;
};

}  // namespace tessera
