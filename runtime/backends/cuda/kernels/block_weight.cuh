// Weights of block types on the device: blocks decoded by the thread that needs them.
#pragma once

#include "graph/base/blocks/block_decode.h"
#include "runtime/backends/cuda/kernels/element.cuh"

namespace tessera::cuda {

// A number of 16 bits as a block of one.
template <class T>
struct OneNumber {
  static constexpr int kElements = 1;
  T value;
};
template <class T>
__device__ inline void decode_block(const OneNumber<T>& block, float (&x)[1]) {
  x[0] = widen(block.value);
}

// Block number `i` from `blocks` on, at any address, as floats.
template <class Block>
__device__ inline void load_block(const uint8_t* blocks, int64_t i, float (&x)[Block::kElements]) {
  Block block;
  memcpy(&block, blocks + i * static_cast<int64_t>(sizeof(Block)), sizeof(Block));
  decode_block(block, x);
}

// Decodes blocks [first, first + count) of every row into a strip [rows, count * elements].
template <class Block>
struct DecodeStrip {
  const uint8_t* w;
  float* strip;
  int64_t row_blocks, first, count;
  __device__ void operator()(int64_t i) const {
    float values[Block::kElements];
    load_block<Block>(w, i / count * row_blocks + first + i % count, values);
    for (int k = 0; k < Block::kElements; ++k) strip[i * Block::kElements + k] = values[k];
  }
};

// f(Block{}) for a block type.
template <class F>
Result<PreparedKernel> dispatch_block_weight(DType dtype, F&& f) {
  return dispatch_block(dtype, f, [](DType other) -> Result<PreparedKernel> {
    return Status(StatusCode::kUnsupported, format("weights of {}", to_text(other)));
  });
}

// f(block) for a block type, and for a type of 16 bits as blocks of one.
template <class F>
Result<PreparedKernel> dispatch_stored_weight(DType dtype, F&& f) {
  if (dtype == DType::kBF16) return f(OneNumber<__nv_bfloat16>{});
#ifndef TSR_FEW_TYPES
  if (dtype == DType::kF16) return f(OneNumber<__half>{});
#endif
  return dispatch_block_weight(dtype, std::forward<F>(f));
}

}  // namespace tessera::cuda
