#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#include "graph/base/half.h"
#include "graph/base/philox.h"
#include "runtime/backends/cpu/kernels/elementwise.h"
#include "runtime/backends/cpu/kernels/kernels.h"
#include "runtime/backends/cpu/kernels/logical_index.h"

namespace tessera::cpu {

namespace {

// Plain rounding: parameters are read and written in their own type.
template <class T>
struct InItsType {
  using Element = T;
  void bind(const LaunchArgs&) {}
  double value(T p) const { return static_cast<double>(p); }
  T rounded(double p, int64_t) { return static_cast<T>(p); }
};

// Stochastic rounding to bf16: 16 random bits choose between the two neighbours.
struct Stochastic {
  using Element = uint16_t;
  LogicalIndex index;
  uint64_t salt;
  int seed_input;
  uint64_t seed = 0;
  uint64_t block = ~uint64_t{0};  // whose bits are there
  std::array<uint32_t, 4> bits{};

  explicit Stochastic(const KernelSpec& spec)
      : index(spec), salt(static_cast<uint64_t>(spec.i64("salt"))), seed_input(spec.input_count() - 1) {}
  void bind(const LaunchArgs& args) { seed = static_cast<uint64_t>(*args.in<int64_t>(seed_input)); }
  double value(uint16_t p) const { return static_cast<double>(f32_from_bf16(p)); }
  uint16_t rounded(double p, int64_t i) {
    const auto narrow = static_cast<float>(p);
    if (narrow != narrow) return bf16_from_f32(narrow);  // adding might make a number of a NaN
    const uint64_t at = index.to_global(i);
    if (at / 8 != block) {
      block = at / 8;
      bits = philox_bits(seed, salt, block);
    }
    const uint32_t random = bits[at % 8 / 2] >> 16 * (at % 2) & 0xffff;
    return static_cast<uint16_t>((std::bit_cast<uint32_t>(narrow) + random) >> 16);
  }
};

// The value of an optional scalar operand, 1 when it is absent.
template <class T>
double scalar_or_one(const LaunchArgs& args, int i, bool present) {
  return present ? static_cast<double>(*args.in<T>(i)) : 1;
}

// Copies the bits of input i to output o.
template <class T>
void keep(const LaunchArgs& args, int i, int o, int64_t begin, int64_t end) {
  if (args.inputs[i] == args.outputs[o]) return;
  std::memcpy(args.out<T>(o) + begin, args.in<T>(i) + begin, sizeof(T) * static_cast<size_t>(end - begin));
}

// Gradient, state and scalars are in T, the parameter is as Rounding has it.
template <class T, class Rounding>
PreparedKernel adamw_update(const KernelSpec& spec, const Rounding& rounding) {
  using P = typename Rounding::Element;
  const int64_t count = spec.output_elements(0);
  const double beta1 = spec.f64("beta1"), beta2 = spec.f64("beta2");
  const double eps = spec.f64("eps"), weight_decay = spec.f64("weight_decay");
  const bool clipped = spec.input_count() >= 7;
  return reference_kernel(
      spec, 17 * static_cast<double>(count), make_kernel([=](const LaunchArgs& args) {
        const P* p_in = args.in<P>(0);
        const T *g_in = args.in<T>(1), *m_in = args.in<T>(2), *v_in = args.in<T>(3);
        P* p_out = args.out<P>(0);
        T *m_out = args.out<T>(1), *v_out = args.out<T>(2);
        const double lr = static_cast<double>(*args.in<T>(4)), step = static_cast<double>(*args.in<T>(5));
        const double gscale = scalar_or_one<T>(args, 6, clipped);
        const double m_unbias = 1 / (1 - std::pow(beta1, step)), v_unbias = 1 / (1 - std::pow(beta2, step));
        args.pool.parallel_ranges(count, kElementGrain, [&](int64_t begin, int64_t end) {
          if (gscale == 0) {
            keep<P>(args, 0, 0, begin, end);
            keep<T>(args, 2, 1, begin, end);
            keep<T>(args, 3, 2, begin, end);
            return;
          }
          Rounding mine = rounding;
          mine.bind(args);
          for (int64_t i = begin; i < end; ++i) {
            const double g = static_cast<double>(g_in[i]) * gscale, p = mine.value(p_in[i]);
            const double m = beta1 * static_cast<double>(m_in[i]) + (1 - beta1) * g;
            const double v = beta2 * static_cast<double>(v_in[i]) + (1 - beta2) * g * g;
            const double direction = m * m_unbias / (std::sqrt(v * v_unbias) + eps) + weight_decay * p;
            p_out[i] = mine.rounded(p - lr * direction, i);
            m_out[i] = static_cast<T>(m);
            v_out[i] = static_cast<T>(v);
          }
        });
      }));
}

template <class T, class Rounding>
PreparedKernel sgd_update(const KernelSpec& spec, const Rounding& rounding) {
  using P = typename Rounding::Element;
  const int64_t count = spec.output_elements(0);
  const double momentum = spec.f64("momentum"), weight_decay = spec.f64("weight_decay");
  const bool clipped = spec.input_count() >= 5;
  return reference_kernel(
      spec, 6 * static_cast<double>(count), make_kernel([=](const LaunchArgs& args) {
        const P* p_in = args.in<P>(0);
        const T *g_in = args.in<T>(1), *buf_in = args.in<T>(2);
        P* p_out = args.out<P>(0);
        T* buf_out = args.out<T>(1);
        const double lr = static_cast<double>(*args.in<T>(3)), gscale = scalar_or_one<T>(args, 4, clipped);
        args.pool.parallel_ranges(count, kElementGrain, [&](int64_t begin, int64_t end) {
          if (gscale == 0) {
            keep<P>(args, 0, 0, begin, end);
            keep<T>(args, 2, 1, begin, end);
            return;
          }
          Rounding mine = rounding;
          mine.bind(args);
          for (int64_t i = begin; i < end; ++i) {
            const double p = mine.value(p_in[i]), g = static_cast<double>(g_in[i]) * gscale;
            const double buf = momentum * static_cast<double>(buf_in[i]) + g + weight_decay * p;
            p_out[i] = mine.rounded(p - lr * buf, i);
            buf_out[i] = static_cast<T>(buf);
          }
        });
      }));
}

}  // namespace

// p, g, m, v, lr, step, (gscale) -> p, m, v
Result<PreparedKernel> prepare_adamw_update(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    return adamw_update<T>(spec, InItsType<T>{});
  });
}

// p bf16, g, m, v, lr, step, gscale, seed -> p, m, v
Result<PreparedKernel> prepare_adamw_update_stochastic(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(1), [&](auto zero) -> Result<PreparedKernel> {
    return adamw_update<decltype(zero)>(spec, Stochastic(spec));
  });
}

// p, g, buf, lr, (gscale) -> p, buf
Result<PreparedKernel> prepare_sgd_update(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    return sgd_update<T>(spec, InItsType<T>{});
  });
}

// p bf16, g, buf, lr, gscale, seed -> p, buf
Result<PreparedKernel> prepare_sgd_update_stochastic(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(1), [&](auto zero) -> Result<PreparedKernel> {
    return sgd_update<decltype(zero)>(spec, Stochastic(spec));
  });
}

}  // namespace tessera::cpu
