// KernelGroup: consecutive launches of a stream as one. Kernels that do not wait for one another run at the same
// time, task by task (the products of a layer's queries, keys and values), and what is too small to share runs on the
// thread that launches, between them. The tasks are those of each kernel by itself, and so are the bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/backends/cpu/cpu_kernel.h"

namespace tessera::cpu {

// GroupMember: a launch, and what the group has to know of it. The operands' lists are read at each launch of the
// group: they outlive it, and so does the kernel.
struct GroupMember {
  const Kernel* kernel = nullptr;
  bool runs_alone = false;
  const void* const* inputs = nullptr;
  void* const* outputs = nullptr;
  void* workspace = nullptr;
  std::span<const int64_t> input_bytes, output_bytes;
  int64_t workspace_bytes = 0;

  // A kernel with phases, or one that is too small to share; with little workspace, since a group may need memory of
  // its own for it.
  bool can_join() const;
  // True where the group may allocate the kernel's workspace outside of the arena. The kernel can then run at the same
  // time as another one that has the same workspace in the plan. True for products of few rows (decoding): some KiB.
  bool may_have_own_workspace() const;
};

class KernelGroup final : public Kernel {
 public:
  explicit KernelGroup(std::span<const GroupMember> members);
  void launch(const LaunchArgs& args) const override;

 private:
  // Phase `phase` of a member; -1 for all of it by one thread.
  struct Item {
    size_t member;
    int phase;
  };
  // Items that may run at the same time, after those of the levels before.
  struct Level {
    std::vector<Item> items;
    bool runs_alone = true;
  };
  LaunchArgs args_of(size_t member, const Pool& pool) const;
  void run_item(const Item& item, int64_t task, const Pool& pool) const;

  struct alignas(64) Line {
    std::byte bytes[64];
  };

  std::vector<GroupMember> members_;
  std::vector<Level> levels_;
  std::vector<std::vector<Line>> workspaces_;  // of members that would wait for another's
};

}  // namespace tessera::cpu
