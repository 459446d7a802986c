#include <cmath>
#include <cstring>

#include "runtime/backends/cpu/kernels/elementwise.h"
#include "runtime/backends/cpu/kernels/kernels.h"
#include "runtime/backends/cpu/kernels/optimizer_kernels.h"
#include "runtime/backends/cpu/kernels/step_setting.h"
#include "runtime/backends/cpu/kernels/stochastic_rounding.h"

namespace tessera::cpu {

namespace {

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
  const auto settings = step_settings<4>(spec, 7, {"beta1", "beta2", "eps", "weight_decay"});
  const double lr_scale = spec.f64("lr_scale");
  const bool clipped = spec.input_count() >= 7;
  return reference_kernel(
      spec, 17 * static_cast<double>(count), make_kernel([=](const LaunchArgs& args) {
        const P* p_in = args.in<P>(0);
        const T *g_in = args.in<T>(1), *m_in = args.in<T>(2), *v_in = args.in<T>(3);
        P* p_out = args.out<P>(0);
        T *m_out = args.out<T>(1), *v_out = args.out<T>(2);
        const double lr = lr_scale * static_cast<double>(*args.in<T>(4));
        const double step = static_cast<double>(*args.in<T>(5));
        const double gscale = scalar_or_one<T>(args, 6, clipped);
        const double beta1 = settings[0].value(args), beta2 = settings[1].value(args);
        const double eps = settings[2].value(args), weight_decay = settings[3].value(args);
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

// OneStateStep: the update of an element by an optimizer with one state.
struct OneStateStep {
  double direction, state;  // against the first, times the rate; and the new state
};

// bind(args)(parameter, gradient, state) of every element.
template <class T, class Rounding, class Bind>
PreparedKernel one_state_update(const KernelSpec& spec, double flops, const Rounding& rounding,
                                const Bind& bind) {
  using P = typename Rounding::Element;
  const int64_t count = spec.output_elements(0);
  const double lr_scale = spec.f64("lr_scale");
  const bool clipped = spec.input_count() >= 5;
  return reference_kernel(
      spec, flops * static_cast<double>(count), make_kernel([=](const LaunchArgs& args) {
        const P* p_in = args.in<P>(0);
        const T *g_in = args.in<T>(1), *state_in = args.in<T>(2);
        P* p_out = args.out<P>(0);
        T* state_out = args.out<T>(1);
        const double lr = lr_scale * static_cast<double>(*args.in<T>(3));
        const double gscale = scalar_or_one<T>(args, 4, clipped);
        const auto step = bind(args);
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
            const OneStateStep made = step(p, g, static_cast<double>(state_in[i]));
            p_out[i] = mine.rounded(p - lr * made.direction, i);
            state_out[i] = static_cast<T>(made.state);
          }
        });
      }));
}

template <class T, class Rounding>
PreparedKernel sgd_update(const KernelSpec& spec, const Rounding& rounding) {
  const auto settings = step_settings<2>(spec, 5, {"momentum", "weight_decay"});
  return one_state_update<T>(spec, 6, rounding, [=](const LaunchArgs& args) {
    const double momentum = settings[0].value(args), weight_decay = settings[1].value(args);
    return [=](double p, double g, double buf) {
      const double direction = momentum * buf + g + weight_decay * p;
      return OneStateStep{direction, direction};
    };
  });
}

template <class T, class Rounding>
PreparedKernel lion_update(const KernelSpec& spec, const Rounding& rounding) {
  const auto settings = step_settings<3>(spec, 5, {"beta1", "beta2", "weight_decay"});
  return one_state_update<T>(spec, 11, rounding, [=](const LaunchArgs& args) {
    const double beta1 = settings[0].value(args), beta2 = settings[1].value(args);
    const double weight_decay = settings[2].value(args);
    return [=](double p, double g, double m) {
      const double mixed = beta1 * m + (1 - beta1) * g;
      const double sign = mixed > 0 ? 1 : mixed < 0 ? -1 : 0;
      return OneStateStep{sign + weight_decay * p, beta2 * m + (1 - beta2) * g};
    };
  });
}

}  // namespace

// p, g, m, v, lr, step, (gscale, (settings)) -> p, m, v
Result<PreparedKernel> prepare_adamw_update(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    return adamw_update<T>(spec, NearestRounding<T>{});
  });
}

// p bf16, g, m, v, lr, step, gscale, (settings), seed -> p, m, v
Result<PreparedKernel> prepare_adamw_update_stochastic(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(1), [&](auto zero) -> Result<PreparedKernel> {
    return adamw_update<decltype(zero)>(spec, StochasticRounding(spec));
  });
}

// p, g, buf, lr, (gscale, (settings)) -> p, buf
Result<PreparedKernel> prepare_sgd_update(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    return sgd_update<T>(spec, NearestRounding<T>{});
  });
}

// p bf16, g, buf, lr, gscale, (settings), seed -> p, buf
Result<PreparedKernel> prepare_sgd_update_stochastic(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(1), [&](auto zero) -> Result<PreparedKernel> {
    return sgd_update<decltype(zero)>(spec, StochasticRounding(spec));
  });
}

// p, g, m, lr, (gscale, (settings)) -> p, m
Result<PreparedKernel> prepare_lion_update(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    return lion_update<T>(spec, NearestRounding<T>{});
  });
}

// p bf16, g, m, lr, gscale, (settings), seed -> p, m
Result<PreparedKernel> prepare_lion_update_stochastic(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(1), [&](auto zero) -> Result<PreparedKernel> {
    return lion_update<decltype(zero)>(spec, StochasticRounding(spec));
  });
}

}  // namespace tessera::cpu
