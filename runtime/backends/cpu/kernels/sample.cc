#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <span>

#include "runtime/backends/cpu/factor_index.h"
#include "runtime/backends/cpu/kernels/kernels.h"
#include "runtime/backends/cpu/kernels/row_kernel.h"
#include "runtime/backends/cpu/philox.h"

namespace tessera::cpu {

namespace {

// The logits of one sequence; NaN counts as never chosen.
template <class T>
struct Logits {
  const T* values;
  double logit(int64_t token) const {
    const double value = double(values[token]);
    return std::isnan(value) ? -std::numeric_limits<double>::infinity() : value;
  }
  // Order of tokens: likelier first, the lower token on a tie. A total order, so that sorting has one result.
  bool before(int32_t a, int32_t b) const { return logit(a) > logit(b) || (logit(a) == logit(b) && a < b); }
};

template <class T>
int32_t argmax(Logits<T> logits, int64_t V) {
  int32_t best = 0;
  for (int64_t token = 1; token < V; ++token)
    if (logits.before(static_cast<int32_t>(token), best)) best = static_cast<int32_t>(token);
  return best;
}

struct Choice {
  double temperature;
  int64_t top_k;  // 0: all
  double top_p;   // >= 1: all
  double uniform;
};

// `order` [V] and `weight` [V] are scratch.
template <class T>
int32_t draw(Logits<T> logits, std::span<int32_t> order, double* weight, const Choice& choice) {
  std::iota(order.begin(), order.end(), 0);
  const auto before = [logits](int32_t a, int32_t b) { return logits.before(a, b); };
  const bool cut = choice.top_k > 0 && choice.top_k < std::ssize(order);
  if (cut) {
    std::nth_element(order.begin(), order.begin() + (choice.top_k - 1), order.end(), before);
    order = order.first(static_cast<size_t>(choice.top_k));
  }
  if (cut || choice.top_p < 1) std::sort(order.begin(), order.end(), before);

  const int32_t likeliest = *std::min_element(order.begin(), order.end(), before);
  const double top = logits.logit(likeliest);
  if (std::isinf(top)) return likeliest;
  double total = 0;
  for (size_t i = 0; i < order.size(); ++i) {
    const double below = top - logits.logit(order[i]);
    total += weight[i] = std::isinf(below) ? 0 : std::exp(-below / choice.temperature);
  }
  size_t count = order.size();
  if (choice.top_p < 1) {
    double head = 0;
    count = 0;
    while (count < order.size() && (count == 0 || head < choice.top_p * total)) head += weight[count++];
    total = head;
  }
  double left = choice.uniform * total;
  for (size_t i = 0; i < count; ++i)
    if ((left -= weight[i]) < 0) return order[i];
  // Rounding may leave a remainder: then the last token that has any probability is drawn.
  while (count > 1 && weight[count - 1] == 0) --count;
  return order[count - 1];
}

}  // namespace

// logits [B, V], temperature, top_k, top_p, seed [], start, length [B] -> token [B]. A task a sequence, each
// with its own part of the workspace.
Result<PreparedKernel> prepare_sample(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    const int64_t B = spec.input_dims(0)[0], V = spec.input_dims(0)[1];
    const FactorIndex b_index(spec.factor('b'));
    auto launch = [=](const LaunchArgs& args) {
      const double temperature = double(*args.in<T>(1)), top_p = double(*args.in<T>(3));
      const int64_t top_k = *args.in<int32_t>(2);
      const uint64_t seed = static_cast<uint64_t>(*args.in<int64_t>(4));
      const int32_t *start = args.in<int32_t>(5), *length = args.in<int32_t>(6);
      int32_t* token = args.out<int32_t>(0);
      double* weights = static_cast<double*>(args.workspace);         // [B, V]
      int32_t* orders = reinterpret_cast<int32_t*>(weights + B * V);  // [B, V]
      args.pool.parallel_ranges(B, 1, [&](int64_t begin, int64_t) {
        const int64_t b = begin;
        const Logits<T> logits{args.in<T>(0) + b * V};
        if (V == 0) {
          token[b] = 0;
        } else if (!(temperature > 0)) {
          token[b] = argmax(logits, V);
        } else {
          const uint64_t position = static_cast<uint64_t>(int64_t{start[b]} + length[b]);
          const auto bits = philox_bits(seed, position, static_cast<uint64_t>(b_index.to_global(b)));
          token[b] = draw(logits, {orders + b * V, static_cast<size_t>(V)}, weights + b * V,
                          Choice{temperature, top_k, top_p, uniform_from_bits(bits[0], bits[1])});
        }
      });
    };
    return reference_kernel(spec, make_kernel(launch), 5.0 * double(B * V),
                            B * V * int64_t{sizeof(double) + sizeof(int32_t)});
  });
}

}  // namespace tessera::cpu
