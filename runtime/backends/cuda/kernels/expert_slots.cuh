// ExpertSlots: the slots of an expert that hold a token.
#pragma once

#include <cstdint>

#include "runtime/backends/cuda/kernels/factor_index.cuh"

namespace tessera::cuda {

// Slots [E, B, S]: the first load[e, b] of every sequence hold a token.
struct ExpertSlots {
  int64_t B, S;
  FactorIndex slots;
  const int32_t* load;  // null: all
  __device__ bool taken(int64_t expert, int64_t sequence, int64_t slot) const {
    return load == nullptr || slots.to_global(slot) < load[expert * B + sequence];
  }
};

}  // namespace tessera::cuda
