// Optimizer steps. Parameter and gradient have one type, state and scalars the wide one; with stochastic
// rounding the gradient is wide too. A gradient scale of 0 leaves every bit as it is. Consecutive updates of
// parameters are one launch.
#include "runtime/backends/cuda/kernels/kernels.h"
#include "runtime/backends/cuda/kernels/map_many.cuh"
#include "runtime/backends/cuda/kernels/stochastic_rounding.cuh"

namespace tessera::cuda {

namespace {

// p, g | m, v -> p | m, v
template <class W, class Rounding>
struct Adamw {
  using Own = typename Rounding::Own;
  const W *lr_at, *step_at, *gscale_at;
  double beta1_f64, beta2_f64;
  W beta1, beta2, eps, weight_decay;
  bool clipped;
  W lr, gscale, m_unbias, v_unbias;
  Rounding rounding;

  bool operator==(const Adamw&) const = default;
  void bind(const LaunchArgs& args) {
    lr_at = args.in<W>(4);
    step_at = args.in<W>(5);
    gscale_at = clipped ? args.in<W>(6) : nullptr;
    if constexpr (Rounding::kHasSeed) rounding.bind(args.inputs[7]);
  }
  __host__ __device__ void take(const Own& own) { rounding.take(own); }
  __device__ void begin() {
    rounding.begin();
    const double step = *step_at;
    lr = *lr_at;
    gscale = gscale_at != nullptr ? *gscale_at : W(1);
    m_unbias = static_cast<W>(1 / (1 - pow(beta1_f64, step)));
    v_unbias = static_cast<W>(1 / (1 - pow(beta2_f64, step)));
  }
  __device__ void operator()(int64_t i, const W* x, W* y) const {
    if (gscale == W(0)) {
      y[0] = x[0];
      y[1] = x[2];
      y[2] = x[3];
      return;
    }
    const W p = x[0], g = x[1] * gscale;
    const W m = beta1 * x[2] + W(1 - beta1_f64) * g, v = beta2 * x[3] + W(1 - beta2_f64) * g * g;
    y[0] = rounding(i, p - lr * (m * m_unbias / (sqrt(v * v_unbias) + eps) + weight_decay * p));
    y[1] = m;
    y[2] = v;
  }
};

// p, g | buf -> p | buf
template <class W, class Rounding>
struct Sgd {
  using Own = typename Rounding::Own;
  const W *lr_at, *gscale_at;
  W momentum, weight_decay;
  bool clipped;
  W lr, gscale;
  Rounding rounding;

  bool operator==(const Sgd&) const = default;
  void bind(const LaunchArgs& args) {
    lr_at = args.in<W>(3);
    gscale_at = clipped ? args.in<W>(4) : nullptr;
    if constexpr (Rounding::kHasSeed) rounding.bind(args.inputs[5]);
  }
  __host__ __device__ void take(const Own& own) { rounding.take(own); }
  __device__ void begin() {
    rounding.begin();
    lr = *lr_at;
    gscale = gscale_at != nullptr ? *gscale_at : W(1);
  }
  __device__ void operator()(int64_t i, const W* x, W* y) const {
    if (gscale == W(0)) {
      y[0] = x[0];
      y[1] = x[2];
      return;
    }
    const W p = x[0], g = x[1] * gscale, buf = momentum * x[2] + g + weight_decay * p;
    y[0] = rounding(i, p - lr * buf);
    y[1] = buf;
  }
};

template <class Rounding, class W>
Adamw<W, Rounding> adamw(const KernelSpec& spec) {
  Adamw<W, Rounding> f{};
  f.clipped = spec.input_count() >= 7;
  f.beta1_f64 = spec.f64("beta1");
  f.beta2_f64 = spec.f64("beta2");
  f.beta1 = W(f.beta1_f64);
  f.beta2 = W(f.beta2_f64);
  f.eps = W(spec.f64("eps"));
  f.weight_decay = W(spec.f64("weight_decay"));
  return f;
}

template <class Rounding, class W>
Sgd<W, Rounding> sgd(const KernelSpec& spec) {
  Sgd<W, Rounding> f{};
  f.clipped = spec.input_count() >= 5;
  f.momentum = W(spec.f64("momentum"));
  f.weight_decay = W(spec.f64("weight_decay"));
  return f;
}

// A bf16 parameter; all other operands are f32.
Result<StochasticRounding::Own> stochastic_own(const KernelSpec& spec) {
  if (spec.input_dtype(1) != DType::kF32)
    return Status(StatusCode::kUnsupported,
                  format("a gradient in {}: this kernel takes f32", to_text(spec.input_dtype(1))));
  TSR_ASSIGN_OR_RETURN(const ShardIndex index, ShardIndex::create(spec));
  return StochasticRounding::Own{static_cast<uint64_t>(spec.i64("salt")), index};
}

}  // namespace

// p, g, m, v, lr, step, (gscale) -> p, m, v
Result<PreparedKernel> prepare_adamw_update(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    using F = Adamw<Wide<T>, NearestRounding>;
    return memory_bound(spec, std::make_unique<MapOfMany<T, 2, 1, 2, 2, F>>(
                                  spec.output_elements(0), adamw<NearestRounding, Wide<T>>(spec)));
  });
}

// p bf16, g, m, v, lr, step, gscale, seed -> p, m, v
Result<PreparedKernel> prepare_adamw_update_stochastic(const KernelSpec& spec) {
  TSR_ASSIGN_OR_RETURN(const StochasticRounding::Own own, stochastic_own(spec));
  using F = Adamw<float, StochasticRounding>;
  return memory_bound(spec, std::make_unique<MapOfMany<__nv_bfloat16, 1, 1, 3, 2, F>>(
                                spec.output_elements(0), adamw<StochasticRounding, float>(spec), own));
}

// p, g, buf, lr, (gscale) -> p, buf
Result<PreparedKernel> prepare_sgd_update(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    using F = Sgd<Wide<T>, NearestRounding>;
    return memory_bound(spec, std::make_unique<MapOfMany<T, 2, 1, 1, 1, F>>(
                                  spec.output_elements(0), sgd<NearestRounding, Wide<T>>(spec)));
  });
}

// p bf16, g, buf, lr, gscale, seed -> p, buf
Result<PreparedKernel> prepare_sgd_update_stochastic(const KernelSpec& spec) {
  TSR_ASSIGN_OR_RETURN(const StochasticRounding::Own own, stochastic_own(spec));
  using F = Sgd<float, StochasticRounding>;
  return memory_bound(spec, std::make_unique<MapOfMany<__nv_bfloat16, 1, 1, 2, 1, F>>(
                                spec.output_elements(0), sgd<StochasticRounding, float>(spec), own));
}

}  // namespace tessera::cuda
