#include <algorithm>
#include <limits>

#include "runtime/backends/cpu/factor_index.h"
#include "runtime/backends/cpu/kernels/kernels.h"
#include "runtime/backends/cpu/kernels/row_kernel.h"

namespace tessera::cpu {

namespace {

// Finds the k largest of p[0, E), largest first, ties by lower index; k distinct indices even if p holds NaN.
template <class T>
void choose_experts(const T* p, int64_t E, int64_t k, int32_t* expert) {
  for (int64_t j = 0; j < k; ++j) {
    int32_t best = -1;
    for (int64_t e = 0; e < E; ++e) {
      const auto candidate = static_cast<int32_t>(e);
      if (std::find(expert, expert + j, candidate) != expert + j) continue;
      if (best < 0 || p[e] > p[best]) best = candidate;
    }
    expert[j] = best;
  }
}

template <class T>
double sum_chosen(const T* p, const int32_t* expert, int64_t k) {
  double sum = 0;
  for (int64_t j = 0; j < k; ++j) sum += double(p[expert[j]]);
  return sum;
}

// Chooser: the experts a token chooses from, and their scores.
struct Chooser {
  int64_t E, K, groups, groups_used, group_best;

  // The k experts of the largest p + bias within the best groups. `bias` may be null; `scores` [E] is scratch.
  template <class T>
  void choose(const T* p, const T* bias, double* scores, int32_t* expert) const {
    if (bias == nullptr && groups == 1) {
      choose_experts(p, E, K, expert);
      return;
    }
    for (int64_t e = 0; e < E; ++e) scores[e] = double(p[e]) + (bias == nullptr ? 0 : double(bias[e]));
    if (groups > 1) keep_best_groups(scores);
    choose_experts(scores, E, K, expert);
  }

 private:
  void keep_best_groups(double* scores) const {
    constexpr double kNone = -std::numeric_limits<double>::infinity();
    const int64_t size = E / groups;
    double best[64];  // by group: the sum of its largest
    for (int64_t g = 0; g < groups; ++g) {
      int32_t largest[2];
      const int64_t count = std::min(group_best, size);
      choose_experts(scores + g * size, size, count, largest);
      best[g] = sum_chosen(scores + g * size, largest, count);
    }
    int32_t kept[64];
    choose_experts(best, groups, groups_used, kept);
    for (int64_t g = 0; g < groups; ++g)
      if (std::find(kept, kept + groups_used, g) == kept + groups_used)
        std::fill_n(scores + g * size, size, kNone);
  }
};

}  // namespace

// probs [B, T, E], bias [E] optional -> expert, slot, gate [B, T, K], token [E, B, S], load [E, B]. First every token
// chooses its experts, then every sequence hands out its slots in the order of its tokens.
Result<PreparedKernel> prepare_moe_route(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    const int64_t B = spec.input_dims(0)[0], tokens = spec.input_dims(0)[1], E = spec.input_dims(0)[2];
    const int64_t K = spec.output_dims(0)[2], S = spec.output_dims(3)[2];
    const bool normalize = spec.i64("normalize") == 1, has_bias = spec.input_count() == 2;
    const double sum_eps = spec.f64("sum_eps");
    const Chooser chooser{E, K, spec.i64("groups"), spec.i64("groups_used"),
                          spec.i64("group_best")};
    auto launch = [=](const LaunchArgs& args) {
      const T *probs = args.in<T>(0), *bias = has_bias ? args.in<T>(1) : nullptr;
      auto* scores =
          static_cast<double*>(args.workspace);  // [B, T, E], null where they are the probabilities
      int32_t *expert = args.out<int32_t>(0), *slot = args.out<int32_t>(1);
      T* gate = args.out<T>(2);
      int32_t *token = args.out<int32_t>(3), *load = args.out<int32_t>(4);
      args.pool.parallel_ranges(B * tokens, row_grain(E * K), [&](int64_t begin, int64_t end) {
        for (int64_t r = begin; r < end; ++r) {
          const T* p = probs + r * E;
          chooser.choose(p, bias, scores + r * E, expert + r * K);
          const double sum = normalize ? sum_chosen(p, expert + r * K, K) + sum_eps : 1;
          for (int64_t j = 0; j < K; ++j)
            gate[r * K + j] = sum == 0 ? T(0) : T(double(p[expert[r * K + j]]) / sum);
        }
      });
      args.pool.parallel_ranges(B, 1, [&](int64_t begin, int64_t end) {
        for (int64_t b = begin; b < end; ++b) {
          for (int64_t e = 0; e < E; ++e) {
            load[e * B + b] = 0;
            std::fill_n(token + (e * B + b) * S, S, -1);
          }
          for (int64_t t = 0; t < tokens; ++t)
            for (int64_t choice = (b * tokens + t) * K; choice < (b * tokens + t + 1) * K; ++choice) {
              const int64_t bucket = expert[choice] * B + b;
              slot[choice] = load[bucket] < S ? load[bucket]++ : -1;
              if (slot[choice] >= 0) token[bucket * S + slot[choice]] = static_cast<int32_t>(t);
            }
        }
      });
    };
    const bool scores = has_bias || chooser.groups > 1;
    return reference_kernel(spec, make_kernel(launch), double(B * tokens * E * K),
                            scores ? B * tokens * E * int64_t{sizeof(double)} : 0);
  });
}

// probs [B, T, E], expert, dgate [B, T, K] -> dprobs [B, T, E]
Result<PreparedKernel> prepare_moe_route_grad(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    const Rows rows = rows_of(spec.input_dims(0));
    const int64_t E = rows.cols, K = spec.input_dims(1)[2];
    const bool normalize = spec.i64("normalize") == 1;
    const double sum_eps = spec.f64("sum_eps");
    auto launch = [=](const LaunchArgs& args) {
      args.pool.parallel_ranges(rows.count, row_grain(E), [&](int64_t begin, int64_t end) {
        for (int64_t r = begin; r < end; ++r) {
          const T *p = args.in<T>(0) + r * E, *dgate = args.in<T>(2) + r * K;
          const int32_t* expert = args.in<int32_t>(1) + r * K;
          T* dp = args.out<T>(0) + r * E;
          std::fill_n(dp, E, T(0));
          const auto is_expert = [E](int32_t e) { return e >= 0 && e < E; };
          double sum = 1, mean = 0;
          if (normalize) {
            sum = sum_eps;
            for (int64_t j = 0; j < K; ++j)
              if (is_expert(expert[j])) {
                sum += double(p[expert[j]]);
                mean += double(dgate[j]) * double(p[expert[j]]);
              }
            mean = sum == 0 ? 0 : mean / sum;
          }
          for (int64_t j = 0; j < K; ++j)
            if (is_expert(expert[j]) && sum != 0) dp[expert[j]] = T((double(dgate[j]) - mean) / sum);
        }
      });
    };
    return reference_kernel(spec, make_kernel(launch), 5.0 * double(rows.count * K));
  });
}

// expert [B, T, K] -> fraction [B, E]: choices by this shard's tokens, divided by the choices of all tokens
Result<PreparedKernel> prepare_moe_fraction(const KernelSpec& spec) {
  return dispatch_float(spec.output_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    const int64_t B = spec.output_dims(0)[0], E = spec.output_dims(0)[1];
    const int64_t choices = spec.input_dims(0)[1] * spec.input_dims(0)[2];
    const double total = double(spec.factor('t').global_extent) * double(spec.factor('k').global_extent);
    const FactorIndex experts(spec.factor('e'));
    auto launch = [=](const LaunchArgs& args) {
      const int32_t* expert = args.in<int32_t>(0);
      T* fraction = args.out<T>(0);
      args.pool.parallel_ranges(B, row_grain(choices), [&](int64_t begin, int64_t end) {
        for (int64_t b = begin; b < end; ++b) {
          T* row = fraction + b * E;
          std::fill_n(row, E, T(0));
          for (int64_t i = 0; i < choices; ++i)  // whole numbers: exact up to 2^24
            if (const int64_t e = experts.to_local(expert[b * choices + i]); e >= 0 && e < E) row[e] += T(1);
          for (int64_t e = 0; e < E; ++e) row[e] = total == 0 ? T(0) : T(double(row[e]) / total);
        }
      });
    };
    return reference_kernel(spec, make_kernel(launch), double(B * choices));
  });
}

}  // namespace tessera::cpu
