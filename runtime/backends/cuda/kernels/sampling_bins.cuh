// Weights of tokens summed by bin, in whole numbers: the same in any order.
#pragma once

#include <cstdint>

#include "runtime/backends/cuda/kernels/sampling_block.cuh"
#include "runtime/backends/cuda/kernels/sampling_choice.cuh"

namespace tessera::cuda::sampling {

inline constexpr int kOwnBins = kBins / kThreads;

// A sum of weights: high * 2^-29 + low * 2^-59.
struct Bin {
  unsigned long long high, low;
  int32_t count, gathered;
  __device__ double sum() const {
    return static_cast<double>(high) * 0x1p-29 + static_cast<double>(low) * 0x1p-59;
  }
};

// A sum in the same whole numbers, as two doubles that are exact in any order: of up to 2^23 amounts of up
// to 1.
struct ExactSum {
  double high = 0, low = 0;
  __device__ void add(double amount) {
    const double whole = floor(amount * 0x1p29) * 0x1p-29;
    high += whole;
    low += rint((amount - whole) * 0x1p59) * 0x1p-59;
  }
  __device__ double over(const Block& team) const { return team.sum(high) + team.sum(low); }
};

// What lies before each bin, in shared memory; [kBins] is all.
struct Before {
  int32_t count[kBins + 1];
  double sum[kBins + 1];

  __device__ void add_up(const Block& team, const Bin* bins) {
    int32_t own_count[kOwnBins], counts = 0, all_counts;
    double own_sum[kOwnBins], sums = 0, all_sums;
#pragma unroll
    for (int i = 0; i < kOwnBins; ++i) {
      const Bin& bin = bins[team.rank * kOwnBins + i];
      counts += own_count[i] = bin.count;
      sums += own_sum[i] = bin.sum();
    }
    counts = sum_before(team, counts, all_counts);
    sums = sum_before(team, sums, all_sums);
#pragma unroll
    for (int i = 0; i < kOwnBins; ++i) {
      count[team.rank * kOwnBins + i] = counts;
      sum[team.rank * kOwnBins + i] = sums;
      counts += own_count[i];
      sums += own_sum[i];
    }
    if (team.rank == 0) {
      count[kBins] = all_counts;
      sum[kBins] = all_sums;
    }
    __syncthreads();
  }
  // The first bin below `end` that is(bin), else `otherwise`.
  template <class Is>
  __device__ int32_t first(const Block& team, int32_t end, int32_t otherwise, Is is) const {
    int32_t found = INT32_MAX;
    for (int i = kOwnBins - 1; i >= 0; --i)
      if (const int32_t bin = team.rank * kOwnBins + i; bin < end && is(bin)) found = bin;
    found = first_of(team, found);
    return found == INT32_MAX ? otherwise : found;
  }
  // The last bin of which any token can be kept.
  template <class W>
  __device__ int32_t last_kept(const Block& team, const Choice<W>& choice) const {
    if (choice.cut)
      return first(team, kBins, kBins - 1, [&](int32_t bin) { return count[bin + 1] >= choice.top_k; });
    const double wanted = choice.top_p * sum[kBins];
    return first(team, kBins, kBins - 1, [&](int32_t bin) { return sum[bin + 1] >= wanted; });
  }
};

}  // namespace tessera::cuda::sampling
