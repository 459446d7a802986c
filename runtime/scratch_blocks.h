// ScratchBlocks: memory for tasks of kernels: tiles that are too large for a caller's stack. Blocks are lent
// and come back, so that there are as many as tasks ever ran at once, and a run allocates none after the
// first. Any thread.
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

  // At least `bytes`, aligned to 64; the one given back last where it is large enough. Null without memory.
  void* take(size_t bytes) noexcept;
  void give(void* memory) noexcept;

 private:
  struct Block;
  std::mutex mutex_;
  Block* free_ = nullptr;  // guarded by `mutex_`
};

}  // namespace tessera
