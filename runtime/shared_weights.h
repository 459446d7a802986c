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

  void set(int32_t rank, int32_t slot, SharedWeight weight) {
    weights_[static_cast<size_t>(rank)][static_cast<size_t>(slot)] = std::move(weight);
  }
  // By slot.
  const std::vector<SharedWeight>& of_rank(int32_t rank) const { return weights_[static_cast<size_t>(rank)]; }

  // Checked before runs: whether the memory still has its contents, since a file may change.
  std::function<Status()> unchanged;

 private:
  std::vector<std::vector<SharedWeight>> weights_;  // [rank][slot]
};

// Allocates a slot's memory as in an arena; the set's device outlives it.
Result<std::shared_ptr<std::byte>> allocate_weight(const std::shared_ptr<DeviceSet>& devices, int32_t rank,
                                                   int64_t bytes);

}  // namespace tessera
