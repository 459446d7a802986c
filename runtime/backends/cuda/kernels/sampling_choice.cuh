// What is chosen from in a row of logits: its options, and where a value lies below the likeliest.
#pragma once

#include <cstdint>

#include "runtime/backends/cuda/kernels/rows.cuh"

namespace tessera::cuda::sampling {

inline constexpr int kBins = 1024;  // of the tokens of a row, by how far they lie below the likeliest

// Options of a row, and its likeliest token, the lowest of equals.
template <class W>
struct Choice {
  double temperature, top_p;
  int64_t top_k;
  W top;
  int32_t likeliest;
  bool cut;     // by top_k
  bool greedy;  // nothing is drawn
  bool by_likelihood;

  __device__ double weight(W value) const {
    const double below = static_cast<double>(top) - static_cast<double>(value);
    return isinf(below) ? 0 : exp(-below / temperature);
  }
  // Not falling as values fall: 1/32 of a logit wide at first, an eighth of a bin's distance further on.
  __device__ int32_t bin(W value) const {
    const auto below = static_cast<float>(static_cast<double>(top) - static_cast<double>(value));
    const int32_t bin =
        static_cast<int32_t>(__float_as_uint(below + 4) >> 16) - (129 << 7);  // 4 = 2^(129 - 127)
    return bin < kBins ? bin : kBins - 1;
  }
};

}  // namespace tessera::cuda::sampling
