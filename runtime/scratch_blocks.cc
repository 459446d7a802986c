#include "runtime/scratch_blocks.h"

#include <new>

namespace tessera {

namespace {
constexpr std::align_val_t kAlignment{64};
}

// Header of a block, followed by its memory.
struct alignas(64) ScratchBlocks::Block {
  size_t bytes;
  Block* next;
};

ScratchBlocks::~ScratchBlocks() {
  while (free_ != nullptr) {
    Block* const block = free_;
    free_ = block->next;
    ::operator delete(block, kAlignment);
  }
}

void* ScratchBlocks::take(size_t bytes) noexcept {
  Block* block = nullptr;
  {
    const std::lock_guard lock(mutex_);
    block = free_;
    if (block != nullptr) free_ = block->next;
  }
  if (block == nullptr || block->bytes < bytes) {
    if (block != nullptr) ::operator delete(block, kAlignment);
    void* const memory = ::operator new(sizeof(Block) + bytes, kAlignment, std::nothrow);
    if (memory == nullptr) return nullptr;
    block = new (memory) Block{bytes, nullptr};
  }
  return block + 1;
}

void ScratchBlocks::give(void* memory) noexcept {
  Block* const block = static_cast<Block*>(memory) - 1;
  const std::lock_guard lock(mutex_);
  block->next = free_;
  free_ = block;
}

}  // namespace tessera
