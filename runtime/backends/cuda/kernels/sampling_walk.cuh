// The draw by likelihood, after top_k and top_p: the tokens of one bin at a time, sorted where they fit.
#pragma once

#include <cstdint>

#include "runtime/backends/cuda/kernels/rows.cuh"
#include "runtime/backends/cuda/kernels/sampling_bins.cuh"
#include "runtime/backends/cuda/kernels/sampling_block.cuh"
#include "runtime/backends/cuda/kernels/sampling_choice.cuh"
#include "runtime/backends/cuda/kernels/sampling_row.cuh"

namespace tessera::cuda::sampling {

template <class T>
struct Walk {
  using W = Wide<T>;
  using Place = typename Sample<T>::Place;
  static constexpr int kSorted = 16384 / static_cast<int>(sizeof(Place));
  static constexpr int kStep = 3, kWays = (1 << kStep) - 1;
  struct Memory {
    Before before;
    Place place[kSorted];  // highest first
    double sum[kSorted];   // of the weights up to and with it
  };

  const Sample<T>& s;
  const Block& team;
  const Choice<W>& choice;
  const Place* row;  // gathered
  Memory& memory;
  int32_t loaded = -1, count = 0;  // the bin, and its tokens
  const Place* of_bin = nullptr;

  // What is counted: tokens, their weights, or tokens that have any.
  enum class Measure { kNumber, kWeight, kPossible };
  __device__ double amount_of(Measure measure, Place place) const {
    if (measure == Measure::kNumber) return 1;
    const double weight = choice.weight(s.value_at(place));
    return measure == Measure::kWeight ? weight : weight > 0 ? 1 : 0;
  }
  // With what lies before a bin: what is wanted, or beyond it.
  struct Enough {
    double before, wanted;
    bool beyond;
    __device__ bool operator()(double sum) const {
      return beyond ? before + sum > wanted : before + sum >= wanted;
    }
  };

  __device__ __noinline__ void load(int32_t bin) {
    if (bin == loaded) return;
    loaded = bin;
    of_bin = row + memory.before.count[bin];
    count = memory.before.count[bin + 1] - memory.before.count[bin];
    if (count > kSorted) return;
    int size = 1;
    while (size < count) size *= 2;
    __syncthreads();
    for (int i = team.rank; i < size; i += kThreads) memory.place[i] = i < count ? of_bin[i] : 0;
    __syncthreads();
    // Bitonic.
    for (int run = 2; run <= size; run *= 2)
      for (int step = run / 2; step > 0; step /= 2) {
        for (int i = team.rank; i < size / 2; i += kThreads) {
          const int left = i / step * 2 * step + i % step, right = left + step;
          const Place a = memory.place[left], b = memory.place[right];
          if ((a < b) == ((left & run) == 0)) {
            memory.place[left] = b;
            memory.place[right] = a;
          }
        }
        __syncthreads();
      }
    const int each = (count + kThreads - 1) / kThreads, begin = min(count, team.rank * each);
    const int end = min(count, begin + each);
    double own = 0, all;
    for (int i = begin; i < end; ++i) memory.sum[i] = own += amount_of(Measure::kWeight, memory.place[i]);
    const double before = sum_before(team, own, all);
    for (int i = begin; i < end; ++i) memory.sum[i] += before;
    __syncthreads();
  }

  // The largest place x for which what the loaded bin's places >= x and >= limit have is enough; 0 if there
  // is none. Places lie in any order, which the sums do not depend on.
  __device__ __noinline__ Place search(Measure measure, Place limit, Enough enough) const {
    Place found = 0;
    const int bits = Sample<T>::kValueBits + s.token_bits;
    for (int shift = (bits + kStep - 1) / kStep * kStep - kStep; shift >= 0; shift -= kStep) {
      ExactSum sums[kWays];
#pragma unroll 1
      for (int i = team.rank; i < count; i += kThreads) {
        const Place at = of_bin[i];
        const double amount = at < limit ? 0 : amount_of(measure, at);
#pragma unroll
        for (int way = 0; way < kWays; ++way)
          if (at >= (found | static_cast<Place>(way + 1) << shift)) sums[way].add(amount);
      }
      int ways = 0;
#pragma unroll
      for (int way = 0; way < kWays; ++way)
        if (enough(sums[way].over(team))) ways = way + 1;  // sums fall from way to way
      found |= static_cast<Place>(ways) << shift;
    }
    return found;
  }

  // Of the loaded bin: the place of its nth token.
  __device__ Place nth(int64_t nth) const {
    if (count <= kSorted) return memory.place[nth - 1];
    return search(Measure::kNumber, 0, {0, static_cast<double>(nth), false});
  }
  // The place of the token, of those from `limit` on, at which the sum of weights is enough; 0 if it never
  // is.
  __device__ __noinline__ Place reach(Place limit, Enough enough) const {
    if (count > kSorted) return search(Measure::kWeight, limit, enough);
    int32_t found = INT32_MAX;
    for (int i = team.rank; i < count && found == INT32_MAX; i += kThreads)
      if (memory.place[i] >= limit && enough(memory.sum[i])) found = i;
    found = first_of(team, found);
    return found == INT32_MAX ? 0 : memory.place[found];
  }
  // What the loaded bin's places from `limit` on have.
  __device__ __noinline__ double sum_from(Measure measure, Place limit) const {
    ExactSum sum;
#pragma unroll 1
    for (int i = team.rank; i < count; i += kThreads)
      if (const Place at = of_bin[i]; at >= limit) sum.add(amount_of(measure, at));
    return sum.over(team);
  }

  __device__ int32_t draw(double uniform) {
    const Before& before = memory.before;
    // Tokens of bins before `last` are kept, and those of it from `limit` on.
    int32_t last = before.last_kept(team, choice);
    Place limit = 0;
    double total = before.sum[last + 1];
    if (choice.cut) {
      load(last);
      limit = nth(choice.top_k - before.count[last]);
      total = before.sum[last] + sum_from(Measure::kWeight, limit);
    }
    if (choice.top_p < 1) {
      // One token at least: the first that has any weight.
      const double wanted = fmax(choice.top_p * (choice.cut ? total : before.sum[kBins]), 0x1p-1000);
      const int32_t bin =
          before.first(team, last, last, [&](int32_t bin) { return before.sum[bin + 1] >= wanted; });
      if (bin != last) limit = 0;
      last = bin;
      load(last);
      const Place head = reach(limit, {before.sum[last], wanted, false});
      limit = limit < head ? head : limit;
      total = before.sum[last] + sum_from(Measure::kWeight, limit);
    }
    const double left = uniform * total;
    const int32_t bin =
        before.first(team, last, last, [&](int32_t bin) { return before.sum[bin + 1] > left; });
    load(bin);
    const Place found = reach(bin == last ? limit : 0, {before.sum[bin], left, true});
    if (found != 0 && amount_of(Measure::kWeight, found) > 0) return s.token_at(found);
    // Rounding left a crumb: the last that has any probability. The first bin has one that has.
    for (int32_t at = bin; at >= 0; --at) {
      if (before.count[at] == before.count[at + 1]) continue;
      load(at);
      const Place from = at == last ? limit : 0;
      const double possible = sum_from(Measure::kPossible, from);
      if (possible > 0) return s.token_at(search(Measure::kPossible, from, {0, possible, false}));
    }
    return choice.likeliest;
  }
};

}  // namespace tessera::cuda::sampling
