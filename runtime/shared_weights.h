// SharedWeights: read-only parameters of a program in host memory that several sessions use, such as a mapped
// file, instead of copies in their arenas. For backends whose device memory is the host's. Immutable once a
// session has it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "runtime/session.h"

namespace tessera {

// One slot's bytes.
struct SharedWeight {
  const std::byte* data = nullptr;  // null: the slot lies in the arena
  std::shared_ptr<const void> owner;
  bool is_copy = false;  // cut out, converted or arranged: memory beside the model's
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

  // Checked before runs: whether the memory still holds what it held, as a file may not.
  std::function<Status()> unchanged;

 private:
  std::vector<std::vector<SharedWeight>> weights_;  // [rank][slot]
};

// Memory like that of an arena, for one slot; the set's device outlives it.
Result<std::shared_ptr<std::byte>> allocate_weight(const std::shared_ptr<DeviceSet>& devices, int32_t rank,
                                                   int64_t bytes);

}  // namespace tessera
