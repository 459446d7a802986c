// SharedWeights: a program's read-only parameters in host memory shared by
// several sessions, such as a mapped file, instead of arena copies. For
// backends whose device memory is host memory. Immutable once a session has it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "runtime/session.h"

namespace tessera {

// SharedWeight: the memory of one slot.
struct SharedWeight {
  const std::byte* data = nullptr;  // null: in the arena
  std::shared_ptr<const void> owner;
  bool is_copy = false;  // cut out, converted or arranged, in addition to the model's own memory
};

class SharedWeights {
 public:
  static bool is_supported(const Executable& executable);

  explicit SharedWeights(const Program& program);

  // Sets a weight of Program::ranks[index].
  void set(size_t index, int32_t slot, SharedWeight weight) {
    weights_[index][static_cast<size_t>(slot)] = std::move(weight);
  }
  const std::vector<SharedWeight>& of_rank(size_t index) const { return weights_[index]; }  // by slot

  // Checked before runs: whether the memory still has its contents, since a file may change.
  std::function<Status()> unchanged;

 private:
  std::vector<std::vector<SharedWeight>> weights_;  // by Program::ranks, then slot
};

// Allocates a slot's memory as in an arena of the rank at `index` of those that live here; the set's device outlives it.
Result<std::shared_ptr<std::byte>> allocate_weight(const std::shared_ptr<DeviceSet>& devices, size_t index,
                                                   int64_t bytes);

}  // namespace tessera
