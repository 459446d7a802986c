// ScratchBlocks: memory for kernel tasks whose tiles exceed a
// stack. Blocks are reused: their number is the most concurrent
// tasks, and no run after the first allocates. Any thread.
#pragma once

#include <cstddef>
#include <mutex>

namespace tessera {

class ScratchBlocks {
 public:
  ScratchBlocks() = default;
  ScratchBlocks(const ScratchBlocks&) = delete;
  ScratchBlocks& operator=(const ScratchBlocks&) = delete;
  ~ScratchBlocks();

  // A block of at least `bytes`, aligned to 64, preferably
  // the last one returned. Null without memory.
  void* take(size_t bytes) noexcept;
  void give(void* memory) noexcept;

 private:
  struct Block;
  std::mutex mutex_;
  Block* free_ = nullptr;  // guarded by `mutex_`
};

}  // namespace tessera
