// The steps of Muon (graph/ops/muon.cc), computed in double.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "runtime/backends/cpu/kernels/elementwise.h"
#include "runtime/backends/cpu/kernels/optimizer_kernels.h"
#include "runtime/backends/cpu/kernels/stochastic_rounding.h"

namespace tessera::cpu {

namespace {

template <class T, class Rounding>
PreparedKernel muon_update(const KernelSpec& spec, const Rounding& rounding) {
  using P = typename Rounding::Element;
  const int64_t count = spec.output_elements(0);
  const double scale = spec.f64("scale"), weight_decay = spec.f64("weight_decay");
  const double lr_scale = spec.f64("lr_scale");
  return reference_kernel(
      spec, 5 * static_cast<double>(count), make_kernel([=](const LaunchArgs& args) {
        const P* p_in = args.in<P>(0);
        const T* d = args.in<T>(1);
        P* p_out = args.out<P>(0);
        const double lr = lr_scale * static_cast<double>(*args.in<T>(2));
        const bool keeps = *args.in<T>(3) == 0;
        args.pool.parallel_ranges(count, kElementGrain, [&](int64_t begin, int64_t end) {
          if (keeps) {
            if (p_in != p_out)
              std::memcpy(p_out + begin, p_in + begin, sizeof(P) * static_cast<size_t>(end - begin));
            return;
          }
          Rounding mine = rounding;
          mine.bind(args);
          for (int64_t i = begin; i < end; ++i) {
            const double p = mine.value(p_in[i]);
            p_out[i] = mine.rounded(p - lr * (scale * static_cast<double>(d[i]) + weight_decay * p), i);
          }
        });
      }));
}

}  // namespace

// m, g, gscale -> m, d
Result<PreparedKernel> prepare_muon_momentum(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    if (spec.input_dtype(1) != spec.input_dtype(0))
      return Status(StatusCode::kUnsupported,
                    format("a gradient in {}: this kernel takes f32 or f64", to_text(spec.input_dtype(1))));
    const int64_t count = spec.output_elements(0);
    const double momentum = spec.f64("momentum");
    return reference_kernel(
        spec, 7 * static_cast<double>(count), make_kernel([=](const LaunchArgs& args) {
          const T *m_in = args.in<T>(0), *g_in = args.in<T>(1);
          T *m_out = args.out<T>(0), *d_out = args.out<T>(1);
          const auto gscale = static_cast<double>(*args.in<T>(2));
          args.pool.parallel_ranges(count, kElementGrain, [&](int64_t begin, int64_t end) {
            for (int64_t i = begin; i < end; ++i) {
              if (gscale == 0) {
                m_out[i] = m_in[i], d_out[i] = 0;
                continue;
              }
              const double g = static_cast<double>(g_in[i]) * gscale;
              const double m = momentum * static_cast<double>(m_in[i]) + (1 - momentum) * g;
              m_out[i] = static_cast<T>(m);
              d_out[i] = static_cast<T>(momentum * m + (1 - momentum) * g);
            }
          });
        }));
  });
}

// p, d, lr, gscale -> p
Result<PreparedKernel> prepare_muon_update(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    return muon_update<T>(spec, NearestRounding<T>{});
  });
}

// p bf16, d, lr, gscale, seed -> p
Result<PreparedKernel> prepare_muon_update_stochastic(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(1), [&](auto zero) -> Result<PreparedKernel> {
    return muon_update<decltype(zero)>(spec, StochasticRounding(spec));
  });
}

}  // namespace tessera::cpu
