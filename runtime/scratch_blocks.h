// ScratchBlocks: memory for tasks of kernels: tiles that are too large for a caller's stack. Blocks are
// reused: their number is the largest number of concurrent tasks, and a run allocates none after the first.
// Any thread.
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

  // A block of at least `bytes`, aligned to 64: the one returned last if it is large enough. Null without
  // memory.
  void* take(size_t bytes) noexcept;
  void give(void* memory) noexcept;

 private:
  struct Block;
  std::mutex mutex_;
  Block* free_ = nullptr;  // guarded by `mutex_`
};

}  // namespace tessera
