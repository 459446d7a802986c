// Weights of block types on the device: blocks decoded by the thread that needs them.
#pragma once

#include "graph/base/blocks/block_decode.h"
#include "runtime/backends/cuda/kernels/element.cuh"

namespace tessera::cuda {

// Block number `i` from `blocks` on, at any address, as floats.
template <class Block>
__device__ inline void load_block(const uint8_t* blocks, int64_t i, float (&x)[Block::kElements]) {
  Block block;
  memcpy(&block, blocks + i * static_cast<int64_t>(sizeof(Block)), sizeof(Block));
  decode_block(block, x);
}

// f(Block{}) for a block type.
template <class F>
Result<PreparedKernel> dispatch_block_weight(DType dtype, F&& f) {
  return dispatch_block(dtype, f, [](DType other) -> Result<PreparedKernel> {
    return Status(StatusCode::kUnsupported, format("weights of {}", to_text(other)));
  });
}

}  // namespace tessera::cuda
