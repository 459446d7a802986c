// The next token of every sequence, drawn as the CPU backend draws it: the same random bits, weights in
// double, and the distribution walked through in the same order. A row of logits is read by many blocks, in
// four launches:
//   top      the largest logit of each part of a row
//   weigh    weights e^(-(top - x) / temperature): a sum for each part where the walk goes by token; where it
//            goes by likelihood, number and sum of the tokens in each of 1024 bins by top - x. Sums are of
//            whole numbers, 2^-59 each, so that their order does not matter
//   gather   where the walk goes by likelihood, the tokens of the bins that may be kept, bin by bin
//   draw     a block a sequence: what top_k and top_p keep and where the draw falls lies in one bin each,
//            whose few tokens it sorts, or in one part
// Nothing is known on the host of temperature, top_k and top_p: what has nothing to do ends at once. A bin of
// more tokens than a block sorts (thousands within 1/32 of a logit) is searched three bits at a time.
#include "runtime/backends/cuda/kernels/factor_index.cuh"
#include "runtime/backends/cuda/kernels/kernels.h"
#include "runtime/backends/cuda/kernels/overlap.cuh"
#include "runtime/backends/cuda/kernels/philox.cuh"
#include "runtime/backends/cuda/kernels/rows.cuh"

namespace tessera::cuda {

namespace {

constexpr int kThreads = 256, kOwnTokens = 4;
constexpr int kPart = kThreads * kOwnTokens;  // tokens a block reads
constexpr int kBins = 1024, kOwnBins = kBins / kThreads;
using Block = Team<kThreads>;

// Bits that order as the values do, and back.
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

// The values of the threads before this one, in their order; `total` is all of them.
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

// The smallest `index` that any thread brings, INT32_MAX for none; so the largest, -1 for none.
__device__ inline int32_t first_of(const Block& team, int32_t index) { return -team.max(-index); }
__device__ inline int32_t last_of(const Block& team, int32_t index) { return team.max(index); }

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

// A place in the order: likelier tokens higher, of equals the lower token.
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
  // In the workspace.
  Place* places;      // [B, V], gathered
  Bin* bins;          // [B, kBins]
  double* sum_of;     // [B, parts]
  W* top_of;          // [B, parts]
  int32_t* first_of;  // [B, parts], the token that has it

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

  // NaN counts as never chosen. + 0: the two zeros are one value.
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

  // From what all parts of the row have found.
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
    choice.likeliest = cuda::first_of(team, own == choice.top ? first : INT32_MAX);
    choice.cut = choice.top_k > 0 && choice.top_k < V;
    choice.greedy = !(choice.temperature > 0) || isinf(choice.top);
    choice.by_likelihood = choice.cut || choice.top_p < 1;
    return choice;
  }
};

// The row and the part of it that a block reads.
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

// Also clears the bins of the row.
template <class T>
__global__ void __launch_bounds__(kThreads) top_kernel(const Sample<T> s) {
  let_next_begin();
  wait_for_previous();
  using W = Wide<T>;
  const Block team{static_cast<int>(threadIdx.x)};
  const PartOfRow<T> own(s);
  for (int64_t i = own.part * kThreads + team.rank; i < kBins; i += int64_t{s.parts} * kThreads)
    s.bins[own.b * kBins + i] = Bin{};
  W own_top = minus_infinity<W>();
  auto first = static_cast<int32_t>(own.part * kPart + team.rank);
  own.each(s, [&](int, int64_t at) {
    const W value = s.value(own.b, at);
    if (value > own_top) first = static_cast<int32_t>(at);
    own_top = Larger{}(own_top, value);
  });
  const W top = team.max(own_top);
  first = first_of(team, own_top == top ? first : INT32_MAX);
  if (team.rank != 0) return;
  s.top_of[blockIdx.x] = top;
  s.first_of[blockIdx.x] = first;
}

template <class T>
__global__ void __launch_bounds__(kThreads) weigh_kernel(const Sample<T> s) {
  let_next_begin();
  wait_for_previous();
  using W = Wide<T>;
  // Of 1024 tokens: numbers of 20 bits add up to no more than 32.
  constexpr uint32_t kLimb = (1u << 20) - 1;
  __shared__ uint32_t low[kBins], middle[kBins], high[kBins], count[kBins];
  const Block team{static_cast<int>(threadIdx.x)};
  const PartOfRow<T> own(s);
  const Choice<W> choice = s.choice(team, own.b);
  if (choice.greedy) return;
  if (!choice.by_likelihood) {
    double sum = 0;
    own.each(s, [&](int, int64_t at) { sum += choice.weight(s.value(own.b, at)); });
    sum = team.sum(sum);
    if (team.rank == 0) s.sum_of[blockIdx.x] = sum;
    return;
  }
  for (int bin = team.rank; bin < kBins; bin += kThreads) low[bin] = middle[bin] = high[bin] = count[bin] = 0;
  __syncthreads();
  own.each(s, [&](int, int64_t at) {
    const W value = s.value(own.b, at);
    const int32_t bin = choice.bin(value);
    const auto weight = static_cast<uint64_t>(choice.weight(value) * 0x1p59 + 0.5);
    atomicAdd(&count[bin], 1u);
    if (weight == 0) return;
    atomicAdd(&low[bin], static_cast<uint32_t>(weight) & kLimb);
    atomicAdd(&middle[bin], static_cast<uint32_t>(weight >> 20) & kLimb);
    atomicAdd(&high[bin], static_cast<uint32_t>(weight >> 40));
  });
  __syncthreads();
  for (int bin = team.rank; bin < kBins; bin += kThreads)
    if (count[bin] != 0) {
      Bin& sum = s.bins[own.b * kBins + bin];
      const unsigned long long below = (static_cast<unsigned long long>(middle[bin]) << 20) + low[bin];
      atomicAdd(&sum.count, static_cast<int32_t>(count[bin]));
      atomicAdd(&sum.high, (static_cast<unsigned long long>(high[bin]) << 10) + (below >> 30));
      atomicAdd(&sum.low, below & ((1ull << 30) - 1));
    }
}

template <class T>
__global__ void __launch_bounds__(kThreads) gather_kernel(const Sample<T> s) {
  let_next_begin();
  wait_for_previous();
  using W = Wide<T>;
  __shared__ Before before;
  __shared__ int32_t count[kBins];  // of this block, then where they begin
  const Block team{static_cast<int>(threadIdx.x)};
  const PartOfRow<T> own(s);
  const Choice<W> choice = s.choice(team, own.b);
  if (choice.greedy || !choice.by_likelihood) return;
  Bin* const bins = s.bins + own.b * kBins;
  before.add_up(team, bins);
  const int32_t last = before.last_kept(team, choice);
  for (int bin = team.rank; bin <= last; bin += kThreads) count[bin] = 0;
  __syncthreads();
  int32_t bin_of[kOwnTokens], rank[kOwnTokens];
  own.each(s, [&](int j, int64_t at) {
    bin_of[j] = choice.bin(s.value(own.b, at));
    if (bin_of[j] <= last) rank[j] = atomicAdd(&count[bin_of[j]], 1);
  });
  __syncthreads();
  for (int bin = team.rank; bin <= last; bin += kThreads)
    if (count[bin] != 0) count[bin] = before.count[bin] + atomicAdd(&bins[bin].gathered, count[bin]);
  __syncthreads();
  own.each(s, [&](int j, int64_t at) {
    if (bin_of[j] <= last)
      s.places[own.b * s.V + count[bin_of[j]] + rank[j]] = s.place(s.value(own.b, at), at);
  });
}

// Draws by likelihood: the tokens of one bin at a time, sorted where they fit.
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

// Draws by token, from the sums of the parts.
template <class T>
__device__ int32_t draw_by_token(const Sample<T>& s, const Block& team, const Choice<Wide<T>>& choice,
                                 int64_t b, double uniform) {
  const double* sums = s.sum_of + b * s.parts;
  const int32_t each = (s.parts + kThreads - 1) / kThreads, begin = min(s.parts, team.rank * each);
  const int32_t end = min(s.parts, begin + each);
  double own = 0, total;
  for (int32_t part = begin; part < end; ++part) own += sums[part];
  double before = sum_before(team, own, total);
  double left = uniform * total, left_in_part = -1;
  int32_t found = INT32_MAX, any = -1;
  for (int32_t part = begin; part < end; ++part) {
    if (sums[part] > 0) any = part;
    if (found == INT32_MAX && before + sums[part] > left) {
      found = part;
      left_in_part = left - before;
    }
    before += sums[part];
  }
  int32_t part = first_of(team, found);
  // Where rounding left a crumb, the last part that has any probability.
  left = part == INT32_MAX ? INFINITY : team.max(part == found ? left_in_part : -1.0);
  if (part == INT32_MAX) part = last_of(team, any);

  double weight[kOwnTokens];
  const int64_t first = int64_t{part} * kPart + team.rank * kOwnTokens;
  own = 0;
#pragma unroll
  for (int j = 0; j < kOwnTokens; ++j)
    own += weight[j] = first + j < s.V ? choice.weight(s.value(b, first + j)) : 0;
  before = sum_before(team, own, total);
  found = INT32_MAX;
  any = -1;
#pragma unroll
  for (int j = 0; j < kOwnTokens; ++j) {
    before += weight[j];
    if (weight[j] > 0) any = static_cast<int32_t>(first + j);
    if (found == INT32_MAX && weight[j] > 0 && before > left) found = static_cast<int32_t>(first + j);
  }
  found = first_of(team, found);
  return found == INT32_MAX ? last_of(team, any) : found;
}

template <class T>
__global__ void __launch_bounds__(kThreads) draw_kernel(const Sample<T> s) {
  let_next_begin();
  wait_for_previous();
  using Memory = typename Walk<T>::Memory;
  __shared__ Memory memory;
  const Block team{static_cast<int>(threadIdx.x)};
  const int64_t b = blockIdx.x;
  const Choice<Wide<T>> choice = s.choice(team, b);
  int32_t drawn = choice.likeliest;
  if (!choice.greedy) {
    const auto position = static_cast<uint64_t>(int64_t{s.start[b]} + s.length[b]);
    const PhiloxBits random =
        philox_bits(static_cast<uint64_t>(*s.seed), position, static_cast<uint64_t>(s.b_index.to_global(b)));
    const double uniform = uniform_from_bits(random.word[0], random.word[1]);
    if (choice.by_likelihood) {
      memory.before.add_up(team, s.bins + b * kBins);
      drawn = Walk<T>{s, team, choice, s.places + b * s.V, memory}.draw(uniform);
    } else {
      drawn = draw_by_token(s, team, choice, b, uniform);
    }
  }
  if (team.rank == 0) s.token[b] = drawn;
}

}  // namespace

// logits [B, V], temperature, top_k, top_p, seed [], start, length [B] -> token [B]
Result<Prepared> prepare_sample(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<Prepared> {
    using T = decltype(zero);
    Sample<T> shape{};
    shape.B = spec.input_dims(0)[0];
    shape.V = spec.input_dims(0)[1];
    if (shape.V > INT32_MAX) return Status(StatusCode::kUnsupported, format("{} tokens", shape.V));
    shape.parts = shape.V == 0 ? 1 : static_cast<int32_t>((shape.V + kPart - 1) / kPart);
    shape.token_bits = 1;
    while (int64_t{1} << shape.token_bits < shape.V) ++shape.token_bits;
    shape.b_index = FactorIndex(spec.factor('b'));
    const auto launch = [shape](const LaunchArgs& args) {
      using W = Wide<T>;
      Sample<T> s = shape;
      if (s.B == 0) return;
      s.logits = args.in<T>(0);
      s.temperature = args.in<W>(1);
      s.top_k = args.in<int32_t>(2);
      s.top_p = args.in<W>(3);
      s.seed = args.in<int64_t>(4);
      s.start = args.in<int32_t>(5);
      s.length = args.in<int32_t>(6);
      s.token = args.out<int32_t>(0);
      s.lay_out(args.workspace);
      const auto all_parts = static_cast<unsigned>(s.B * s.parts);
      launch_overlapping(top_kernel<T>, all_parts, kThreads, 0, args, s);
      launch_overlapping(weigh_kernel<T>, all_parts, kThreads, 0, args, s);
      launch_overlapping(gather_kernel<T>, all_parts, kThreads, 0, args, s);
      launch_overlapping(draw_kernel<T>, static_cast<unsigned>(s.B), kThreads, 0, args, s);
    };
    return memory_bound(spec, make_kernel(launch), Sample<T>::workspace_bytes(shape.B, shape.V, shape.parts));
  });
}

}  // namespace tessera::cuda
