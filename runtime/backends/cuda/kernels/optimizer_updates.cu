// Optimizer steps. Parameter and gradient are of one type, state and scalars in the wide one. A gradient
// scale of 0 leaves every bit as it is. Updates of all parameters that follow one another are one launch.
#include "runtime/backends/cuda/kernels/kernels.h"
#include "runtime/backends/cuda/kernels/map_many.cuh"

namespace tessera::cuda {

namespace {

// p, g | m, v -> p | m, v
template <class W>
struct Adamw {
  const W *lr_at, *step_at, *gscale_at;
  double beta1_f64, beta2_f64;
  W beta1, beta2, eps, weight_decay;
  bool clipped;
  W lr, gscale, m_unbias, v_unbias;

  bool operator==(const Adamw&) const = default;
  void bind(const LaunchArgs& args) {
    lr_at = args.in<W>(4);
    step_at = args.in<W>(5);
    gscale_at = clipped ? args.in<W>(6) : nullptr;
  }
  __device__ void begin() {
    const double step = *step_at;
    lr = *lr_at;
    gscale = gscale_at != nullptr ? *gscale_at : W(1);
    m_unbias = static_cast<W>(1 / (1 - pow(beta1_f64, step)));
    v_unbias = static_cast<W>(1 / (1 - pow(beta2_f64, step)));
  }
  __device__ void operator()(int64_t, const W* x, W* y) const {
    if (gscale == W(0)) {
      y[0] = x[0];
      y[1] = x[2];
      y[2] = x[3];
      return;
    }
    const W p = x[0], g = x[1] * gscale;
    const W m = beta1 * x[2] + W(1 - beta1_f64) * g, v = beta2 * x[3] + W(1 - beta2_f64) * g * g;
    y[0] = p - lr * (m * m_unbias / (sqrt(v * v_unbias) + eps) + weight_decay * p);
    y[1] = m;
    y[2] = v;
  }
};

// p, g | buf -> p | buf
template <class W>
struct Sgd {
  const W *lr_at, *gscale_at;
  W momentum, weight_decay;
  bool clipped;
  W lr, gscale;

  bool operator==(const Sgd&) const = default;
  void bind(const LaunchArgs& args) {
    lr_at = args.in<W>(3);
    gscale_at = clipped ? args.in<W>(4) : nullptr;
  }
  __device__ void begin() {
    lr = *lr_at;
    gscale = gscale_at != nullptr ? *gscale_at : W(1);
  }
  __device__ void operator()(int64_t, const W* x, W* y) const {
    if (gscale == W(0)) {
      y[0] = x[0];
      y[1] = x[2];
      return;
    }
    const W p = x[0], g = x[1] * gscale, buf = momentum * x[2] + g + weight_decay * p;
    y[0] = p - lr * buf;
    y[1] = buf;
  }
};

}  // namespace

// p, g, m, v, lr, step, (gscale) -> p, m, v
Result<Prepared> prepare_adamw_update(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<Prepared> {
    using T = decltype(zero);
    using W = Wide<T>;
    const int64_t count = spec.output_elements(0);
    Adamw<W> f{};
    f.clipped = spec.input_count() == 7;
    f.beta1_f64 = spec.f64("beta1");
    f.beta2_f64 = spec.f64("beta2");
    f.beta1 = W(f.beta1_f64);
    f.beta2 = W(f.beta2_f64);
    f.eps = W(spec.f64("eps"));
    f.weight_decay = W(spec.f64("weight_decay"));
    return memory_bound(spec, std::make_unique<MapOfMany<T, 2, 1, 2, 2, Adamw<W>>>(count, f));
  });
}

// p, g, buf, lr, (gscale) -> p, buf
Result<Prepared> prepare_sgd_update(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<Prepared> {
    using T = decltype(zero);
    using W = Wide<T>;
    const int64_t count = spec.output_elements(0);
    Sgd<W> f{};
    f.clipped = spec.input_count() == 5;
    f.momentum = W(spec.f64("momentum"));
    f.weight_decay = W(spec.f64("weight_decay"));
    return memory_bound(spec, std::make_unique<MapOfMany<T, 2, 1, 1, 1, Sgd<W>>>(count, f));
  });
}

}  // namespace tessera::cuda
