#include "runtime/backends/cuda/kernels/factor_index.cuh"
#include "runtime/backends/cuda/kernels/kernels.h"
#include "runtime/backends/cuda/kernels/rows.cuh"

namespace tessera::cuda {

namespace {

// Scores by which a token chooses: its probabilities, plus a bias where there is one.
template <class T>
struct Scores {
  using W = Wide<T>;
  const W* bias;  // [E], or null
  int64_t E, groups, groups_used, group_best;

  __device__ W score(const T* p, int64_t e) const {
    return bias == nullptr ? widen(p[e]) : widen(p[e]) + bias[e];
  }
  // The sum of the largest of a group.
  __device__ W group_score(const T* p, int64_t g) const {
    const int64_t size = E / groups;
    W first = score(p, g * size), second = 0;
    for (int64_t i = 1; i < size; ++i) {
      const W value = score(p, g * size + i);
      const bool is_most = value > first;
      const W less = is_most ? first : value;
      second = i == 1 || less > second ? less : second;
      first = is_most ? value : first;
    }
    return group_best == 1 ? first : first + second;
  }
  // A bit for each of the best groups, the lower number of equals.
  __device__ uint64_t best_groups(const T* p) const {
    if (groups == 1) return 1;
    uint64_t kept = 0;
    for (int64_t j = 0; j < groups_used; ++j) {
      int64_t best = -1;
      W most = 0;
      for (int64_t g = 0; g < groups; ++g) {
        if ((kept >> g & 1) != 0) continue;
        const W value = group_score(p, g);
        if (best >= 0 && !(value > most)) continue;
        best = g;
        most = value;
      }
      kept |= uint64_t{1} << best;
    }
    return kept;
  }
};

// Chooses for one token the K largest of its scores, largest first, the lower index of equals; distinct also
// where they hold NaN. Without NaN, the order itself determines which ones were chosen before.
template <class T>
struct Choose {
  const T* probs;
  Scores<T> scores;
  int32_t* expert;
  T* gate;
  int64_t E, K;
  bool normalize;
  double sum_eps;
  __device__ void operator()(int64_t row) const {
    using W = Wide<T>;
    const T* p = probs + row * E;
    int32_t* chosen = expert + row * K;
    const int64_t group = E / scores.groups;
    const uint64_t kept = scores.best_groups(p);
    bool is_ordered = true;
#pragma unroll 8
    for (int32_t e = 0; e < E; ++e) is_ordered = is_ordered && scores.score(p, e) == scores.score(p, e);
    int32_t before = -1;
    W last = 0, sum = 0;
    for (int64_t j = 0; j < K; ++j) {
      int32_t best = -1;
      W most = 0;
#pragma unroll 8
      for (int32_t e = 0; e < E; ++e) {
        if (scores.groups > 1 && (kept >> (e / group) & 1) == 0) continue;
        const W value = scores.score(p, e);
        bool taken = j > 0 && (value > last || (value == last && e <= before));
        if (!is_ordered) {
          taken = false;
          for (int64_t i = 0; i < j; ++i) taken = taken || chosen[i] == e;
        }
        if (!taken && (best < 0 || value > most)) {
          best = e;
          most = value;
        }
      }
      chosen[j] = before = best;
      last = most;
      sum += widen(p[best]);
    }
    sum = normalize ? sum + W(sum_eps) : W(1);
    for (int64_t j = 0; j < K; ++j)
      gate[row * K + j] = narrow<T>(sum == W(0) ? W(0) : widen(p[chosen[j]]) / sum);
  }
};

// Hands out an expert's slots of a sequence in the order of the tokens: a warp reads 128 choices at a time,
// and counts those of the expert before each lane's.
struct HandOut {
  static constexpr int kAtOnce = 4;
  const int32_t* expert;
  int32_t *slot, *token, *load;
  int64_t B, tokens, K, S;
  __device__ void operator()(const Team<32>& team, int64_t pair) const {
    const int64_t e = pair / B, first = pair % B * tokens * K, choices = tokens * K;
    int64_t count = 0;
    for (int64_t begin = 0; begin < choices; begin += 32 * kAtOnce) {
      int32_t chosen[kAtOnce];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const int64_t at = begin + 32 * i + team.rank;
        chosen[i] = at < choices ? expert[first + at] : -1;
      }
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const unsigned all = __ballot_sync(0xffffffffu, chosen[i] == e);
        const int64_t at = begin + 32 * i + team.rank, s = count + __popc(all & ((1u << team.rank) - 1));
        if (chosen[i] == e) {
          slot[first + at] = s < S ? static_cast<int32_t>(s) : -1;
          if (s < S) token[pair * S + s] = static_cast<int32_t>(at / K);
        }
        count += __popc(all);
      }
    }
    if (count > S) count = S;
    if (team.rank == 0) load[pair] = static_cast<int32_t>(count);
    for (int64_t s = count + team.rank; s < S; s += 32) token[pair * S + s] = -1;
  }
};

template <class T>
struct RouteGrad {
  const T* probs;
  const int32_t* expert;
  const T* dgate;
  T* dprobs;
  int64_t E, K;
  bool normalize;
  double sum_eps;
  __device__ void operator()(int64_t row) const {
    using W = Wide<T>;
    const T *p = probs + row * E, *dg = dgate + row * K;
    const int32_t* chosen = expert + row * K;
    T* dp = dprobs + row * E;
    for (int64_t e = 0; e < E; ++e) dp[e] = narrow<T>(W(0));
    const auto known = [this](int32_t e) { return e >= 0 && e < E; };
    W sum = 1, mean = 0;
    if (normalize) {
      sum = W(sum_eps);
      for (int64_t j = 0; j < K; ++j)
        if (known(chosen[j])) {
          sum += widen(p[chosen[j]]);
          mean += widen(dg[j]) * widen(p[chosen[j]]);
        }
      mean = sum == W(0) ? W(0) : mean / sum;
    }
    for (int64_t j = 0; j < K; ++j)
      if (known(chosen[j]) && sum != W(0)) dp[chosen[j]] = narrow<T>((widen(dg[j]) - mean) / sum);
  }
};

template <class T>
struct Fraction {
  const int32_t* expert;
  T* fraction;
  int64_t E, choices;
  double all;
  FactorIndex experts;
  template <class Team>
  __device__ void operator()(const Team& team, int64_t row) const {
    const int64_t b = row / E, e = row % E;
    int32_t count = 0;
    team.each(choices, [&](int64_t i) { count += experts.to_local(expert[b * choices + i]) == e; });
    count = team.sum(count);
    if (team.rank == 0) fraction[row] = narrow<T>(static_cast<Wide<T>>(all == 0 ? 0 : count / all));
  }
};

}  // namespace

// probs [B, T, E], bias [E] optional -> expert, slot, gate [B, T, K], token [E, B, S], load [E, B]
Result<PreparedKernel> prepare_moe_route(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    using W = Wide<T>;
    const int64_t B = spec.input_dims(0)[0], tokens = spec.input_dims(0)[1], E = spec.input_dims(0)[2];
    const int64_t K = spec.output_dims(0)[2], S = spec.output_dims(3)[2];
    const bool normalize = spec.i64("normalize") == 1, has_bias = spec.input_count() == 2;
    const double sum_eps = spec.f64("sum_eps");
    const int64_t groups = spec.i64("groups"), groups_used = spec.i64("groups_used");
    const int64_t group_best = spec.i64("group_best");
    return memory_bound(
        spec, make_kernel([=](const LaunchArgs& args) {
          const Scores<T> scores{has_bias ? args.in<W>(1) : nullptr, E, groups, groups_used, group_best};
          launch_each(args.stream, B * tokens,
                      Choose<T>{args.in<T>(0), scores, args.out<int32_t>(0), args.out<T>(2), E, K, normalize, sum_eps});
          launch_teams<32>(args.stream, E * B,
                           HandOut{args.out<int32_t>(0), args.out<int32_t>(1), args.out<int32_t>(3),
                                   args.out<int32_t>(4), B, tokens, K, S});
        }));
  });
}

// probs [B, T, E], expert, dgate [B, T, K] -> dprobs [B, T, E]
Result<PreparedKernel> prepare_moe_route_grad(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    const Rows rows = rows_of(spec.input_dims(0));
    const int64_t K = spec.input_dims(1)[2];
    const bool normalize = spec.i64("normalize") == 1;
    const double sum_eps = spec.f64("sum_eps");
    return memory_bound(spec, make_kernel([=](const LaunchArgs& args) {
                          launch_each(args.stream, rows.count,
                                      RouteGrad<T>{args.in<T>(0), args.in<int32_t>(1), args.in<T>(2),
                                                   args.out<T>(0), rows.cols, K, normalize, sum_eps});
                        }));
  });
}

// expert [B, T, K] -> fraction [B, E], of the tokens of this shard over those of all
Result<PreparedKernel> prepare_moe_fraction(const KernelSpec& spec) {
  return dispatch_float(spec.output_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    const int64_t B = spec.output_dims(0)[0], E = spec.output_dims(0)[1];
    const int64_t choices = spec.input_dims(0)[1] * spec.input_dims(0)[2];
    const double all = double(spec.factor('t').global_extent) * double(spec.factor('k').global_extent);
    const FactorIndex experts(spec.factor('e'));
    return by_rows(spec, B * E, choices, [=](const LaunchArgs& args) {
      return Fraction<T>{args.in<int32_t>(0), args.out<T>(0), E, choices, all, experts};
    });
  });
}

}  // namespace tessera::cuda
