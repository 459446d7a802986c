// The steps of Muon (graph/ops/muon.cc), a thread an element.
#include "runtime/backends/cuda/kernels/optimizer_kernels.h"
#include "runtime/backends/cuda/kernels/rows.cuh"
#include "runtime/backends/cuda/kernels/stochastic_rounding.cuh"

namespace tessera::cuda {

namespace {

template <class T>
struct MuonMomentum {
  using W = Wide<T>;
  const W* m;
  const T* g;
  const W* gscale;
  W *m_out, *d;
  W momentum, fresh;
  __device__ void operator()(int64_t i) const {
    const W scale = *gscale;
    if (scale == W(0)) {
      m_out[i] = m[i];
      d[i] = W(0);
      return;
    }
    const W gradient = scale * widen(g[i]), mean = momentum * m[i] + fresh * gradient;
    m_out[i] = mean;
    d[i] = momentum * mean + fresh * gradient;
  }
};

// P: the parameter's type, W: the direction's.
template <class P, class W, class Rounding>
struct MuonUpdate {
  const P* p;
  const W *d, *lr, *gscale;
  P* out;
  W scale, weight_decay, lr_scale;
  mutable Rounding rounding;
  __device__ void operator()(int64_t i) const {
    if (*gscale == W(0)) {
      out[i] = p[i];
      return;
    }
    rounding.begin();
    const W value = widen(p[i]);
    out[i] = narrow<P>(rounding(i, value - *lr * lr_scale * (scale * d[i] + weight_decay * value)));
  }
};

template <class P, class W, class Rounding>
PreparedKernel muon_update(const KernelSpec& spec, const Rounding& rounding) {
  const int64_t count = spec.output_elements(0);
  const W scale = W(spec.f64("scale")), weight_decay = W(spec.f64("weight_decay"));
  const W lr_scale = W(spec.f64("lr_scale"));
  return memory_bound(spec, make_kernel([=](const LaunchArgs& args) {
                        Rounding mine = rounding;
                        if constexpr (Rounding::kHasSeed) mine.bind(args.inputs[4]);
                        launch_each(args.stream, count,
                                    MuonUpdate<P, W, Rounding>{args.in<P>(0), args.in<W>(1), args.in<W>(2),
                                                               args.in<W>(3), args.out<P>(0), scale,
                                                               weight_decay, lr_scale, mine});
                      }));
}

}  // namespace

// m, g, gscale -> m, d
Result<PreparedKernel> prepare_muon_momentum(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(1), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    using W = Wide<T>;
    const int64_t count = spec.output_elements(0);
    const double momentum = spec.f64("momentum");
    return memory_bound(spec, make_kernel([=](const LaunchArgs& args) {
                          launch_each(args.stream, count,
                                      MuonMomentum<T>{args.in<W>(0), args.in<T>(1), args.in<W>(2),
                                                      args.out<W>(0), args.out<W>(1), W(momentum),
                                                      W(1 - momentum)});
                        }));
  });
}

// p, d, lr, gscale -> p
Result<PreparedKernel> prepare_muon_update(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    return muon_update<T, Wide<T>>(spec, NearestRounding{});
  });
}

// p bf16, d, lr, gscale, seed -> p
Result<PreparedKernel> prepare_muon_update_stochastic(const KernelSpec& spec) {
  TSR_ASSIGN_OR_RETURN(const StochasticRounding rounding, stochastic_rounding(spec));
  return muon_update<__nv_bfloat16, float>(spec, rounding);
}

}  // namespace tessera::cuda
