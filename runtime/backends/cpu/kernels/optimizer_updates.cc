#include <cmath>
#include <cstring>

#include "runtime/backends/cpu/kernels/elementwise.h"
#include "runtime/backends/cpu/kernels/kernels.h"

namespace tessera::cpu {

namespace {

// The value of an optional scalar operand, 1 when it is absent.
template <class T>
double scalar_or_one(const LaunchArgs& args, int i, bool present) {
  return present ? static_cast<double>(*args.in<T>(i)) : 1;
}

// output o takes the bits of input i.
template <class T>
void keep(const LaunchArgs& args, int i, int o, int64_t begin, int64_t end) {
  if (args.inputs[i] == args.outputs[o]) return;
  std::memcpy(args.out<T>(o) + begin, args.in<T>(i) + begin, sizeof(T) * static_cast<size_t>(end - begin));
}

}  // namespace

// p, g, m, v, lr, step, (gscale) -> p, m, v
Result<Prepared> prepare_adamw_update(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<Prepared> {
    using T = decltype(zero);
    const int64_t count = spec.output_elements(0);
    const double beta1 = spec.f64("beta1"), beta2 = spec.f64("beta2");
    const double eps = spec.f64("eps"), weight_decay = spec.f64("weight_decay");
    const bool clipped = spec.input_count() == 7;
    return reference_kernel(
        spec, 17 * static_cast<double>(count), make_kernel([=](const LaunchArgs& args) {
          const T *p_in = args.in<T>(0), *g_in = args.in<T>(1), *m_in = args.in<T>(2), *v_in = args.in<T>(3);
          T *p_out = args.out<T>(0), *m_out = args.out<T>(1), *v_out = args.out<T>(2);
          const double lr = static_cast<double>(*args.in<T>(4)), step = static_cast<double>(*args.in<T>(5));
          const double gscale = scalar_or_one<T>(args, 6, clipped);
          const double m_unbias = 1 / (1 - std::pow(beta1, step)), v_unbias = 1 / (1 - std::pow(beta2, step));
          args.pool.parallel_ranges(count, kElementGrain, [&](int64_t begin, int64_t end) {
            if (gscale == 0) {
              keep<T>(args, 0, 0, begin, end);
              keep<T>(args, 2, 1, begin, end);
              keep<T>(args, 3, 2, begin, end);
              return;
            }
            for (int64_t i = begin; i < end; ++i) {
              const double g = static_cast<double>(g_in[i]) * gscale, p = static_cast<double>(p_in[i]);
              const double m = beta1 * static_cast<double>(m_in[i]) + (1 - beta1) * g;
              const double v = beta2 * static_cast<double>(v_in[i]) + (1 - beta2) * g * g;
              const double direction = m * m_unbias / (std::sqrt(v * v_unbias) + eps) + weight_decay * p;
              p_out[i] = static_cast<T>(p - lr * direction);
              m_out[i] = static_cast<T>(m);
              v_out[i] = static_cast<T>(v);
            }
          });
        }));
  });
}

// p, g, buf, lr, (gscale) -> p, buf
Result<Prepared> prepare_sgd_update(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<Prepared> {
    using T = decltype(zero);
    const int64_t count = spec.output_elements(0);
    const double momentum = spec.f64("momentum"), weight_decay = spec.f64("weight_decay");
    const bool clipped = spec.input_count() == 5;
    return reference_kernel(
        spec, 6 * static_cast<double>(count), make_kernel([=](const LaunchArgs& args) {
          const T *p_in = args.in<T>(0), *g_in = args.in<T>(1), *buf_in = args.in<T>(2);
          T *p_out = args.out<T>(0), *buf_out = args.out<T>(1);
          const double lr = static_cast<double>(*args.in<T>(3)), gscale = scalar_or_one<T>(args, 4, clipped);
          args.pool.parallel_ranges(count, kElementGrain, [&](int64_t begin, int64_t end) {
            if (gscale == 0) {
              keep<T>(args, 0, 0, begin, end);
              keep<T>(args, 2, 1, begin, end);
              return;
            }
            for (int64_t i = begin; i < end; ++i) {
              const double p = static_cast<double>(p_in[i]), g = static_cast<double>(g_in[i]) * gscale;
              const double buf = momentum * static_cast<double>(buf_in[i]) + g + weight_decay * p;
              p_out[i] = static_cast<T>(p - lr * buf);
              buf_out[i] = static_cast<T>(buf);
            }
          });
        }));
  });
}

}  // namespace tessera::cpu
