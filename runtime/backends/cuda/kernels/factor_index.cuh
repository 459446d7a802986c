// FactorIndex: the global index of a local index of a factor, from the one or two ranges that this shard
// holds.
#pragma once

#include <cstdint>

#include "runtime/backend_abi.h"

namespace tessera::cuda {

class FactorIndex {
 public:
  // A factor that is not split: local = global.
  __host__ __device__ FactorIndex() {}
  explicit FactorIndex(const tsr_abi_factor& factor)
      : first_begin_(factor.begin[0]),
        first_size_(factor.end[0] - factor.begin[0]),
        second_begin_(factor.range_count > 1 ? factor.begin[1] : 0),
        second_size_(factor.range_count > 1 ? factor.end[1] - factor.begin[1] : 0) {}

  __device__ int64_t to_global(int64_t local) const {
    return local < first_size_ ? first_begin_ + local : second_begin_ + (local - first_size_);
  }
  // -1 when another shard holds the global index (any integer, also out of the global range).
  __device__ int64_t to_local(int64_t global) const {
    if (global >= first_begin_ && global - first_begin_ < first_size_) return global - first_begin_;
    if (global >= second_begin_ && global - second_begin_ < second_size_)
      return first_size_ + (global - second_begin_);
    return -1;
  }
  // Number of local indices that stand for global ones before `global` (any integer). They come first: the
  // ranges ascend.
  __device__ int64_t count_before(int64_t global) const {
    return clamped(global - first_begin_, first_size_) + clamped(global - second_begin_, second_size_);
  }

 private:
  __device__ static int64_t clamped(int64_t x, int64_t most) { return x < 0 ? 0 : x > most ? most : x; }
  int64_t first_begin_ = 0, first_size_ = INT64_MAX, second_begin_ = 0, second_size_ = 0;
};

}  // namespace tessera::cuda
