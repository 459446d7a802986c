// The next token of every sequence, drawn as the CPU backend draws it: the same random bits, weights in
// double, and the distribution walked through in the same order. Nothing is sorted: tokens have a place in
// that order, as a number, and what is looked for (the k-th of them, where the probabilities reach top_p,
// where the draw falls) is the largest number for which the weights at and above it suffice, found three bits
// at a time.
#include "runtime/backends/cuda/kernels/factor_index.cuh"
#include "runtime/backends/cuda/kernels/kernels.h"
#include "runtime/backends/cuda/kernels/philox.cuh"
#include "runtime/backends/cuda/kernels/rows.cuh"

namespace tessera::cuda {

namespace {

// Bits that order as the values do.
__device__ inline uint32_t order_bits(float x) {
  const uint32_t bits = __float_as_uint(x);
  return bits >> 31 != 0 ? ~bits : bits | 0x80000000u;
}
__device__ inline uint64_t order_bits(double x) {
  const auto bits = static_cast<uint64_t>(__double_as_longlong(x));
  return bits >> 63 != 0 ? ~bits : bits | (uint64_t{1} << 63);
}

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
  static constexpr int kStep = 3, kWays = (1 << kStep) - 1;

  const T* logits;
  const W *temperature_at, *top_p_at;
  const int32_t* top_k_at;
  const int64_t* seed_at;
  const int32_t *start, *length;
  int32_t* token;
  double* weights;  // [B, V]
  int64_t V;
  int token_bits;
  FactorIndex b_index;

  // NaN counts as never chosen. + 0: the two zeros are one value.
  __device__ static W value_of(T x) {
    const W value = widen(x);
    return value != value ? minus_infinity<W>() : value + W(0);
  }
  __device__ Place place(W value, int64_t at) const {
    return static_cast<Place>(order_bits(value)) << token_bits | static_cast<Place>(V - 1 - at);
  }
  // By token alone, the first one highest.
  __device__ Place place(int64_t at) const { return static_cast<Place>(V - 1 - at); }

  // The largest place x below 2^bits with enough(sum of weight(i) over the i with place_of(i) >= x); 0 if
  // there is none. The sums have one order, as all of the team have the result.
  template <class Team, class PlaceOfToken, class Weight, class Enough>
  __device__ Place search(const Team& team, int bits, PlaceOfToken place_of, Weight weight,
                          Enough enough) const {
    Place found = 0;
    for (int shift = (bits + kStep - 1) / kStep * kStep - kStep; shift >= 0; shift -= kStep) {
      double sums[kWays] = {};
      team.each(V, [&](int64_t i) {
        const Place at = place_of(i);
        const double w = weight(i);
#pragma unroll
        for (int way = 0; way < kWays; ++way)
          if (at >= (found | static_cast<Place>(way + 1) << shift)) sums[way] += w;
      });
      int ways = 0;
#pragma unroll
      for (int way = 0; way < kWays; ++way)
        if (enough(team.sum(sums[way]))) ways = way + 1;  // sums fall from way to way
      found |= static_cast<Place>(ways) << shift;
    }
    return found;
  }

  template <class Team>
  __device__ int32_t draw(const Team& team, const T* x, double* weight, int64_t b) const {
    // The likeliest, the lowest of equals.
    W own_top = minus_infinity<W>();
    int32_t first = team.rank;
#pragma unroll 16
    for (int64_t i = team.rank; i < V; i += Team::size) {
      const W value = value_of(x[i]);
      if (value > own_top) first = static_cast<int32_t>(i);
      own_top = Larger{}(own_top, value);
    }
    const W top = team.max(own_top);
    const int32_t likeliest = -team.max(own_top == top ? -first : INT32_MIN);
    const double temperature = *temperature_at, top_p = *top_p_at;
    if (!(temperature > 0) || isinf(top)) return likeliest;

    const auto ordered = [&](int64_t i) { return place(value_of(x[i]), i); };
    const int bits = kValueBits + token_bits;
    const int64_t top_k = *top_k_at;
    const bool cut = top_k > 0 && top_k < V;
    Place limit = 0;  // tokens below it are out
    if (cut)
      limit = search(
          team, bits, ordered, [](int64_t) { return 1.0; },
          [&](double count) { return count >= double(top_k); });

    double total = 0;
    team.each(V, [&](int64_t i) {
      const double below = static_cast<double>(top) - static_cast<double>(value_of(x[i]));
      const bool out = isinf(below) || ordered(i) < limit;
      weight[i] = out ? 0 : exp(-below / temperature);
      total += weight[i];
    });
    total = team.sum(total);
    const auto weight_of = [&](int64_t i) { return weight[i]; };
    if (top_p < 1) {
      const double wanted = top_p * total;
      Place head = search(team, bits, ordered, weight_of, [&](double sum) { return sum >= wanted; });
      const Place best = place(top, likeliest);  // at least one token stays
      head = head < best ? head : best;
      total = 0;
      team.each(V, [&](int64_t i) {
        if (ordered(i) < head) weight[i] = 0;
        total += weight[i];
      });
      total = team.sum(total);
    }

    const auto position = static_cast<uint64_t>(int64_t{start[b]} + length[b]);
    const PhiloxBits random =
        philox_bits(static_cast<uint64_t>(*seed_at), position, static_cast<uint64_t>(b_index.to_global(b)));
    const double left = uniform_from_bits(random.word[0], random.word[1]) * total;
    const auto beyond = [&](double sum) { return sum > left; };
    const bool sorted = cut || top_p < 1;
    const Place found = sorted
                            ? search(team, bits, ordered, weight_of, beyond)
                            : search(
                                  team, token_bits, [&](int64_t i) { return place(i); }, weight_of, beyond);
    // The token at that place; where rounding left a crumb, the last that has any probability.
    int32_t chosen = INT32_MIN;
    team.each(V, [&](int64_t i) {
      if ((sorted ? ordered(i) : place(i)) == found && weight[i] > 0) chosen = static_cast<int32_t>(i);
    });
    chosen = team.max(chosen);
    if (chosen >= 0) return chosen;
    W least = minus_infinity<W>();  // negated
    team.each(V, [&](int64_t i) {
      if (weight[i] > 0) least = Larger{}(least, -value_of(x[i]));
    });
    least = -team.max(least);
    int32_t last = INT32_MIN;
    team.each(V, [&](int64_t i) {
      if (weight[i] > 0 && (!sorted || value_of(x[i]) == least)) last = max(last, static_cast<int32_t>(i));
    });
    last = team.max(last);
    return last >= 0 ? last : likeliest;
  }

  template <class Team>
  __device__ void operator()(const Team& team, int64_t b) const {
    const int32_t drawn = V == 0 ? 0 : draw(team, logits + b * V, weights + b * V, b);
    if (team.rank == 0) token[b] = drawn;
  }
};

}  // namespace

// logits [B, V], temperature, top_k, top_p, seed [], start, length [B] -> token [B]
Result<Prepared> prepare_sample(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<Prepared> {
    using T = decltype(zero);
    const int64_t B = spec.input_dims(0)[0], V = spec.input_dims(0)[1];
    if (V > INT32_MAX) return Status(StatusCode::kUnsupported, format("{} tokens", V));
    int token_bits = 1;
    while (int64_t{1} << token_bits < V) ++token_bits;
    const FactorIndex b_index(spec.factor('b'));
    return memory_bound(
        spec, make_kernel([=](const LaunchArgs& args) {
          launch_rows(
              args.stream, B, V,
              Sample<T>{args.in<T>(0), args.in<Wide<T>>(1), args.in<Wide<T>>(3), args.in<int32_t>(2),
                        args.in<int64_t>(4), args.in<int32_t>(5), args.in<int32_t>(6), args.out<int32_t>(0),
                        static_cast<double*>(args.workspace), V, token_bits, b_index});
        }),
        B * V * static_cast<int64_t>(sizeof(double)));
  });
}

}  // namespace tessera::cuda
