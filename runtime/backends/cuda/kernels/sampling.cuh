// Sampling of the next token on the device (sample.cu), from small to large: sums over a block (Block), the
// options of a row (Choice), weights summed by bin (Bin, BinPrefix), operands and workspace (Sample,
// PartOfRow), and the draw by likelihood (LikelihoodDraw).
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "runtime/backends/cuda/kernels/factor_index.cuh"
#include "runtime/backends/cuda/kernels/rows.cuh"

namespace tessera::cuda::sampling {

inline constexpr int kThreads = 256, kOwnTokens = 4;
inline constexpr int kPart = kThreads * kOwnTokens;  // tokens a block reads
using Block = Team<kThreads>;

// Sum of the values of the threads before this one, in their order; `total` is the sum of all.
template <class W>
__device__ W sum_before(const Block& team, W value, W& total) {
  __shared__ W of_warp[kThreads / 32];
  const int lane = team.rank % 32, warp = team.rank / 32;
  W sum = value;
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const W left = __shfl_up_sync(0xffffffffu, sum, step);
    if (lane >= step) sum += left;
  }
  if (lane == 31) of_warp[warp] = sum;
  const W previous = __shfl_up_sync(0xffffffffu, sum, 1);
  __syncthreads();
  W before = 0;
  total = 0;
#pragma unroll
  for (int w = 0; w < kThreads / 32; ++w) {
    if (w == warp) before = total;
    total += of_warp[w];
  }
  __syncthreads();  // before the next call writes to `of_warp`
  return lane == 0 ? before : before + previous;
}

// The smallest `index` of all threads, INT32_MAX for none; and the largest, -1 for none.
__device__ inline int32_t first_of(const Block& team, int32_t index) { return -team.max(-index); }
__device__ inline int32_t last_of(const Block& team, int32_t index) { return team.max(index); }

inline constexpr int kBins = 1024;  // bins of a row's tokens, by their distance below the likeliest

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
  // Bins never fall as values fall: 1/32 of a logit wide at first, an eighth of a bin's distance further on.
  __device__ int32_t bin(W value) const {
    const auto below = static_cast<float>(static_cast<double>(top) - static_cast<double>(value));
    const int32_t bin =
        static_cast<int32_t>(__float_as_uint(below + 4) >> 16) - (129 << 7);  // 4 = 2^(129 - 127)
    return bin < kBins ? bin : kBins - 1;
  }
};

inline constexpr int kOwnBins = kBins / kThreads;

// Bin: a sum of weights, high * 2^-29 + low * 2^-59, in whole numbers: the same in any order.
struct Bin {
  unsigned long long high, low;
  int32_t count, gathered;
  __device__ double sum() const {
    return static_cast<double>(high) * 0x1p-29 + static_cast<double>(low) * 0x1p-59;
  }
};

// ExactSum: the same whole numbers as two doubles, exact in any order for up to 2^23 amounts of up to 1.
struct ExactSum {
  double high = 0, low = 0;
  __device__ void add(double amount) {
    const double whole = floor(amount * 0x1p29) * 0x1p-29;
    high += whole;
    low += rint((amount - whole) * 0x1p59) * 0x1p-59;
  }
  __device__ double over(const Block& team) const { return team.sum(high) + team.sum(low); }
};

// BinPrefix: number and weight of the tokens before each bin, in shared memory; [kBins] is the total.
struct BinPrefix {
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
  // The last bin that may hold kept tokens.
  template <class W>
  __device__ int32_t last_kept(const Block& team, const Choice<W>& choice) const {
    if (choice.cut)
      return first(team, kBins, kBins - 1, [&](int32_t bin) { return count[bin + 1] >= choice.top_k; });
    const double wanted = choice.top_p * sum[kBins];
    return first(team, kBins, kBins - 1, [&](int32_t bin) { return sum[bin + 1] >= wanted; });
  }
};

// Bits in the order of the values, and back.
template <class W>
using BitsOf = std::conditional_t<sizeof(W) == 8, uint64_t, uint32_t>;
template <class W>
constexpr BitsOf<W> kSignBit = BitsOf<W>{1} << (sizeof(W) * 8 - 1);
template <class W>
__device__ BitsOf<W> order_bits(W x) {
  BitsOf<W> bits;
  memcpy(&bits, &x, sizeof bits);
  return (bits & kSignBit<W>) != 0 ? ~bits : bits | kSignBit<W>;
}
template <class W>
__device__ W from_order_bits(BitsOf<W> bits) {
  bits = (bits & kSignBit<W>) != 0 ? bits ^ kSignBit<W> : ~bits;
  W x;
  memcpy(&x, &bits, sizeof x);
  return x;
}

// PlaceOf: a token's place in the order of likelihood: likelier tokens higher, of equals the lower token.
template <class W>
struct PlaceOf {
  using type = uint64_t;
};
template <>
struct PlaceOf<double> {
  using type = unsigned __int128;
};

template <class T>
struct Sample {
  using W = Wide<T>;
  using Place = typename PlaceOf<W>::type;
  static constexpr int kValueBits = static_cast<int>(sizeof(W)) * 8;

  const T* logits;
  const W *temperature, *top_p;
  const int32_t* top_k;
  const int64_t* seed;
  const int32_t *start, *length;
  int32_t* token;
  int64_t B, V;
  int32_t parts;  // of a row
  int token_bits;
  FactorIndex b_index;
  // Workspace.
  Place* places;      // [B, V], gathered
  Bin* bins;          // [B, kBins]
  double* sum_of;     // [B, parts]
  W* top_of;          // [B, parts]
  int32_t* first_of;  // [B, parts], the first token with that value

  static int64_t workspace_bytes(int64_t B, int64_t V, int64_t parts) {
    return B * (V * static_cast<int64_t>(sizeof(Place)) + kBins * static_cast<int64_t>(sizeof(Bin)) +
                parts * static_cast<int64_t>(sizeof(double) + sizeof(W) + sizeof(int32_t)));
  }
  void lay_out(void* workspace) {
    places = static_cast<Place*>(workspace);
    bins = reinterpret_cast<Bin*>(places + B * V);
    sum_of = reinterpret_cast<double*>(bins + B * kBins);
    top_of = reinterpret_cast<W*>(sum_of + B * parts);
    first_of = reinterpret_cast<int32_t*>(top_of + B * parts);
  }

  // The value of a logit. NaN is never chosen. Adding 0 makes the two zeros one value.
  __device__ W value(int64_t b, int64_t at) const {
    const W value = widen(logits[b * V + at]);
    return value != value ? minus_infinity<W>() : value + W(0);
  }
  __device__ Place place(W value, int64_t at) const {
    return static_cast<Place>(order_bits(value)) << token_bits | static_cast<Place>(V - 1 - at);
  }
  __device__ W value_at(Place place) const {
    return from_order_bits<W>(static_cast<BitsOf<W>>(place >> token_bits));
  }
  __device__ int32_t token_at(Place place) const {
    return static_cast<int32_t>(V - 1 - static_cast<int64_t>(place & ((Place{1} << token_bits) - 1)));
  }

  // The options of row b, from the largest logits of all its parts.
  __device__ Choice<W> choice(const Block& team, int64_t b) const {
    Choice<W> choice;
    choice.temperature = *temperature;
    choice.top_p = *top_p;
    choice.top_k = *top_k;
    W own = minus_infinity<W>();
    int32_t first = INT32_MAX;
#pragma unroll 1
    for (int64_t part = b * parts + team.rank; part < (b + 1) * parts; part += kThreads)
      if (const W top = top_of[part]; first == INT32_MAX || top > own) {
        own = top;
        first = first_of[part];
      }
    choice.top = team.max(own);
    choice.likeliest = sampling::first_of(team, own == choice.top ? first : INT32_MAX);
    choice.cut = choice.top_k > 0 && choice.top_k < V;
    choice.greedy = !(choice.temperature > 0) || isinf(choice.top);
    choice.by_likelihood = choice.cut || choice.top_p < 1;
    return choice;
  }
};

// PartOfRow: the row that a block reads, and its part of it.
template <class T>
struct PartOfRow {
  int64_t b, part;
  __device__ explicit PartOfRow(const Sample<T>& s)
      : b(blockIdx.x / static_cast<unsigned>(s.parts)), part(blockIdx.x % static_cast<unsigned>(s.parts)) {}
  // f(j, token) for the tokens of this thread.
  template <class F>
  __device__ void each(const Sample<T>& s, F f) const {
#pragma unroll
    for (int j = 0; j < kOwnTokens; ++j) {
      const int64_t at = part * kPart + j * kThreads + threadIdx.x;
      if (at < s.V) f(j, at);
    }
  }
};

// LikelihoodDraw: the draw after top_k and top_p. It visits the tokens of one bin at a time, sorted where
// they fit.
template <class T>
struct LikelihoodDraw {
  using W = Wide<T>;
  using Place = typename Sample<T>::Place;
  static constexpr int kSorted = 16384 / static_cast<int>(sizeof(Place));
  static constexpr int kStep = 3, kWays = (1 << kStep) - 1;
  struct Memory {
    BinPrefix before;
    Place place[kSorted];  // highest first
    double sum[kSorted];   // of the weights up to and including it
  };

  const Sample<T>& s;
  const Block& team;
  const Choice<W>& choice;
  const Place* row;  // gathered
  Memory& memory;
  int32_t loaded = -1, count = 0;  // the loaded bin, and its number of tokens
  const Place* of_bin = nullptr;

  // Measure: tokens, their weights, or tokens with a weight above 0.
  enum class Measure { kNumber, kWeight, kPossible };
  __device__ double amount_of(Measure measure, Place place) const {
    if (measure == Measure::kNumber) return 1;
    const double weight = choice.weight(s.value_at(place));
    return measure == Measure::kWeight ? weight : weight > 0 ? 1 : 0;
  }
  // Enough: whether the sum before a bin plus `sum` reaches, or exceeds, the target.
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
    // Bitonic sort, largest first.
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

  // Finds the largest place x such that the loaded bin's places >= x and >= limit sum up to enough; 0 if
  // there is none. The sums do not depend on the order of the places.
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

  // The place of the loaded bin's nth token.
  __device__ Place nth(int64_t nth) const {
    if (count <= kSorted) return memory.place[nth - 1];
    return search(Measure::kNumber, 0, {0, static_cast<double>(nth), false});
  }
  // The place, at least `limit`, of the token at which the sum of weights becomes enough; 0 if it never does.
  __device__ __noinline__ Place reach(Place limit, Enough enough) const {
    if (count > kSorted) return search(Measure::kWeight, limit, enough);
    int32_t found = INT32_MAX;
    for (int i = team.rank; i < count && found == INT32_MAX; i += kThreads)
      if (memory.place[i] >= limit && enough(memory.sum[i])) found = i;
    found = first_of(team, found);
    return found == INT32_MAX ? 0 : memory.place[found];
  }
  // Sum over the loaded bin's places from `limit` on.
  __device__ __noinline__ double sum_from(Measure measure, Place limit) const {
    ExactSum sum;
#pragma unroll 1
    for (int i = team.rank; i < count; i += kThreads)
      if (const Place at = of_bin[i]; at >= limit) sum.add(amount_of(measure, at));
    return sum.over(team);
  }

  __device__ int32_t draw(double uniform) {
    const BinPrefix& before = memory.before;
    // Kept tokens: those of bins before `last`, and those of bin `last` from `limit` on.
    int32_t last = before.last_kept(team, choice);
    Place limit = 0;
    double total = before.sum[last + 1];
    if (choice.cut) {
      load(last);
      limit = nth(choice.top_k - before.count[last]);
      total = before.sum[last] + sum_from(Measure::kWeight, limit);
    }
    if (choice.top_p < 1) {
      // At least one token is kept: the first with a weight above 0.
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
    // Rounding may leave a remainder: then the last token with a weight is drawn. The first bin has such a
    // one.
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
