// Optimizer steps. Parameter and gradient have one type, state and scalars the wide one; with stochastic
// rounding the gradient is wide too. A gradient scale of 0 leaves every bit as it is. Consecutive updates of
// parameters are one launch, whatever their decay and factor on the rate.
#include "runtime/backends/cuda/kernels/kernels.h"
#include "runtime/backends/cuda/kernels/map_many.cuh"
#include "runtime/backends/cuda/kernels/optimizer_kernels.h"
#include "runtime/backends/cuda/kernels/stochastic_rounding.cuh"

namespace tessera::cuda {

namespace {

// The state of one parameter.
template <class W, class Rounding>
struct ParameterOwn {
  W weight_decay, lr_scale;
  bool fixed_decay;
  typename Rounding::Own rounding;
};

// The part that all updates share: the rate, the factor on gradients, what is the parameter's own. Settings of the step
// are operands behind the factor; the last of them is the decay.
template <class W, class Rounding>
struct UpdateScalars {
  using Own = ParameterOwn<W, Rounding>;
  const W *lr_at, *gscale_at;
  const double* decay_at;  // null: each parameter's own
  W lr, gscale, weight_decay, step_decay, lr_scale;
  bool clipped, by_step, fixed_decay;
  Rounding rounding;

  bool operator==(const UpdateScalars&) const = default;
  void prepare(const KernelSpec& spec, int gscale_input, int settings) {
    clipped = spec.input_count() > gscale_input;
    by_step = spec.input_count() > gscale_input + settings;
  }
  void bind(const LaunchArgs& args, int lr_input, int gscale_input, int settings) {
    if (!by_step) settings = 0;
    lr_at = args.in<W>(lr_input);
    gscale_at = clipped ? args.in<W>(gscale_input) : nullptr;
    decay_at = by_step ? args.in<double>(gscale_input + settings) : nullptr;
    if constexpr (Rounding::kHasSeed) rounding.bind(args.inputs[gscale_input + 1 + settings]);
  }
  __host__ __device__ void take(const Own& own) {
    weight_decay = own.weight_decay;
    lr_scale = own.lr_scale;
    fixed_decay = own.fixed_decay;
    rounding.take(own.rounding);
  }
  __device__ void begin() {
    rounding.begin();
    lr = *lr_at;
    gscale = gscale_at != nullptr ? *gscale_at : W(1);
    if (by_step) step_decay = static_cast<W>(*decay_at);
  }
  __device__ W decay() const { return by_step && !fixed_decay ? step_decay : weight_decay; }
};

// p, g | m, v -> p | m, v
template <class W, class Rounding>
struct Adamw : UpdateScalars<W, Rounding> {
  using Base = UpdateScalars<W, Rounding>;
  const W* step_at;
  const double *beta1_at, *beta2_at, *eps_at;  // of the step
  double beta1_f64, beta2_f64;
  W beta1, beta2, eps;
  W m_unbias, v_unbias;

  bool operator==(const Adamw&) const = default;
  void bind(const LaunchArgs& args) {
    Base::bind(args, 4, 6, 4);
    step_at = args.in<W>(5);
    if (!this->by_step) return;
    beta1_at = args.in<double>(7);
    beta2_at = args.in<double>(8);
    eps_at = args.in<double>(9);
  }
  __device__ void begin() {
    Base::begin();
    if (this->by_step) {
      beta1_f64 = *beta1_at;
      beta2_f64 = *beta2_at;
      beta1 = static_cast<W>(beta1_f64);
      beta2 = static_cast<W>(beta2_f64);
      eps = static_cast<W>(*eps_at);
    }
    const double step = *step_at;
    m_unbias = static_cast<W>(1 / (1 - pow(beta1_f64, step)));
    v_unbias = static_cast<W>(1 / (1 - pow(beta2_f64, step)));
  }
  __device__ void operator()(int64_t i, const W* x, W* y) const {
    if (this->gscale == W(0)) {
      y[0] = x[0];
      y[1] = x[2];
      y[2] = x[3];
      return;
    }
    const W p = x[0], g = x[1] * this->gscale;
    const W m = beta1 * x[2] + W(1 - beta1_f64) * g, v = beta2 * x[3] + W(1 - beta2_f64) * g * g;
    const W direction = m * m_unbias / (sqrt(v * v_unbias) + eps) + this->decay() * p;
    y[0] = this->rounding(i, p - this->lr * this->lr_scale * direction);
    y[1] = m;
    y[2] = v;
  }
};

// p, g | buf -> p | buf
template <class W, class Rounding>
struct Sgd : UpdateScalars<W, Rounding> {
  using Base = UpdateScalars<W, Rounding>;
  const double* momentum_at;  // of the step
  W momentum;

  bool operator==(const Sgd&) const = default;
  void bind(const LaunchArgs& args) {
    Base::bind(args, 3, 4, 2);
    momentum_at = this->by_step ? args.in<double>(5) : nullptr;
  }
  __device__ void begin() {
    Base::begin();
    if (this->by_step) momentum = static_cast<W>(*momentum_at);
  }
  __device__ void operator()(int64_t i, const W* x, W* y) const {
    if (this->gscale == W(0)) {
      y[0] = x[0];
      y[1] = x[2];
      return;
    }
    const W p = x[0], g = x[1] * this->gscale, buf = momentum * x[2] + g + this->decay() * p;
    y[0] = this->rounding(i, p - this->lr * this->lr_scale * buf);
    y[1] = buf;
  }
};

// p, g | m -> p | m
template <class W, class Rounding>
struct Lion : UpdateScalars<W, Rounding> {
  using Base = UpdateScalars<W, Rounding>;
  const double *beta1_at, *beta2_at;  // of the step
  W beta1, beta2, fresh1, fresh2;     // fresh: 1 - beta, rounded once

  bool operator==(const Lion&) const = default;
  void bind(const LaunchArgs& args) {
    Base::bind(args, 3, 4, 3);
    beta1_at = this->by_step ? args.in<double>(5) : nullptr;
    beta2_at = this->by_step ? args.in<double>(6) : nullptr;
  }
  __host__ __device__ void set(double first, double second) {
    beta1 = static_cast<W>(first);
    beta2 = static_cast<W>(second);
    fresh1 = static_cast<W>(1 - first);
    fresh2 = static_cast<W>(1 - second);
  }
  __device__ void begin() {
    Base::begin();
    if (this->by_step) set(*beta1_at, *beta2_at);
  }
  __device__ void operator()(int64_t i, const W* x, W* y) const {
    if (this->gscale == W(0)) {
      y[0] = x[0];
      y[1] = x[2];
      return;
    }
    const W p = x[0], g = x[1] * this->gscale, m = x[2], mixed = beta1 * m + fresh1 * g;
    const W sign = mixed > W(0) ? W(1) : mixed < W(0) ? W(-1) : W(0);
    y[0] = this->rounding(i, p - this->lr * this->lr_scale * (sign + this->decay() * p));
    y[1] = beta2 * m + fresh2 * g;
  }
};

template <class Rounding, class W>
Adamw<W, Rounding> adamw(const KernelSpec& spec) {
  Adamw<W, Rounding> f{};
  f.prepare(spec, 6, 4);
  f.beta1_f64 = spec.f64("beta1");
  f.beta2_f64 = spec.f64("beta2");
  f.beta1 = W(f.beta1_f64);
  f.beta2 = W(f.beta2_f64);
  f.eps = W(spec.f64("eps"));
  return f;
}

template <class Rounding, class W>
Sgd<W, Rounding> sgd(const KernelSpec& spec) {
  Sgd<W, Rounding> f{};
  f.prepare(spec, 4, 2);
  f.momentum = W(spec.f64("momentum"));
  return f;
}

template <class Rounding, class W>
Lion<W, Rounding> lion(const KernelSpec& spec) {
  Lion<W, Rounding> f{};
  f.prepare(spec, 4, 3);
  f.set(spec.f64("beta1"), spec.f64("beta2"));
  return f;
}

template <class W>
ParameterOwn<W, NearestRounding> nearest_own(const KernelSpec& spec) {
  return {W(spec.f64("weight_decay")), W(spec.f64("lr_scale")), spec.i64("fixed_decay") == 1, {}};
}

// A bf16 parameter; all other operands are f32.
using StochasticOwn = ParameterOwn<float, StochasticRounding>;
Result<StochasticOwn> stochastic_own(const KernelSpec& spec) {
  TSR_ASSIGN_OR_RETURN(const StochasticRounding rounding, stochastic_rounding(spec));
  return StochasticOwn{static_cast<float>(spec.f64("weight_decay")), static_cast<float>(spec.f64("lr_scale")),
                       spec.i64("fixed_decay") == 1, rounding.own};
}

}  // namespace

// p, g, m, v, lr, step, (gscale, (settings)) -> p, m, v
Result<PreparedKernel> prepare_adamw_update(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    using F = Adamw<Wide<T>, NearestRounding>;
    return memory_bound(spec, std::make_unique<MapOfMany<T, 2, 1, 2, 2, F>>(
                                  spec.output_elements(0), adamw<NearestRounding, Wide<T>>(spec), nearest_own<Wide<T>>(spec)));
  });
}

// p bf16, g, m, v, lr, step, gscale, (settings), seed -> p, m, v
Result<PreparedKernel> prepare_adamw_update_stochastic(const KernelSpec& spec) {
  TSR_ASSIGN_OR_RETURN(const StochasticOwn own, stochastic_own(spec));
  using F = Adamw<float, StochasticRounding>;
  return memory_bound(spec, std::make_unique<MapOfMany<__nv_bfloat16, 1, 1, 3, 2, F>>(
                                spec.output_elements(0), adamw<StochasticRounding, float>(spec), own));
}

// p, g, buf, lr, (gscale, (settings)) -> p, buf
Result<PreparedKernel> prepare_sgd_update(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    using F = Sgd<Wide<T>, NearestRounding>;
    return memory_bound(spec, std::make_unique<MapOfMany<T, 2, 1, 1, 1, F>>(
                                  spec.output_elements(0), sgd<NearestRounding, Wide<T>>(spec), nearest_own<Wide<T>>(spec)));
  });
}

// p bf16, g, buf, lr, gscale, (settings), seed -> p, buf
Result<PreparedKernel> prepare_sgd_update_stochastic(const KernelSpec& spec) {
  TSR_ASSIGN_OR_RETURN(const StochasticOwn own, stochastic_own(spec));
  using F = Sgd<float, StochasticRounding>;
  return memory_bound(spec, std::make_unique<MapOfMany<__nv_bfloat16, 1, 1, 2, 1, F>>(
                                spec.output_elements(0), sgd<StochasticRounding, float>(spec), own));
}

// p, g, m, lr, (gscale, (settings)) -> p, m
Result<PreparedKernel> prepare_lion_update(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    using F = Lion<Wide<T>, NearestRounding>;
    return memory_bound(spec, std::make_unique<MapOfMany<T, 2, 1, 1, 1, F>>(
                                  spec.output_elements(0), lion<NearestRounding, Wide<T>>(spec),
                                  nearest_own<Wide<T>>(spec)));
  });
}

// p bf16, g, m, lr, gscale, (settings), seed -> p, m
Result<PreparedKernel> prepare_lion_update_stochastic(const KernelSpec& spec) {
  TSR_ASSIGN_OR_RETURN(const StochasticOwn own, stochastic_own(spec));
  using F = Lion<float, StochasticRounding>;
  return memory_bound(spec, std::make_unique<MapOfMany<__nv_bfloat16, 1, 1, 2, 1, F>>(
                                spec.output_elements(0), lion<StochasticRounding, float>(spec), own));
}

}  // namespace tessera::cuda
