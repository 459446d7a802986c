// Activations, their gradients, swiglu, and clamp.
#include "runtime/backends/cuda/kernels/activation_math.cuh"
#include "runtime/backends/cuda/kernels/decode_step.h"
#include "runtime/backends/cuda/kernels/kernels.h"
#include "runtime/backends/cuda/kernels/map.cuh"

namespace tessera::cuda {

namespace {

// A functor named `Name` whose result is `expression` of W x[].
#define TSR_MAP_FUNCTOR(Name, expression)                         \
  struct Name : NoSetUp {                                         \
    template <class W>                                            \
    __device__ void operator()(int64_t, const W* x, W* y) const { \
      y[0] = expression;                                          \
    }                                                             \
  };
TSR_MAP_FUNCTOR(Relu, x[0] > W(0) ? x[0] : W(0))
TSR_MAP_FUNCTOR(ReluGrad, x[0] > W(0) ? x[1] : W(0))
TSR_MAP_FUNCTOR(GeluTanh, gelu_tanh(x[0]))
TSR_MAP_FUNCTOR(GeluExact, gelu_exact(x[0]))
TSR_MAP_FUNCTOR(GeluTanhGrad, x[1] * gelu_tanh_derivative(x[0]))
TSR_MAP_FUNCTOR(GeluExactGrad, x[1] * gelu_exact_derivative(x[0]))
TSR_MAP_FUNCTOR(Silu, silu(x[0]))
TSR_MAP_FUNCTOR(SiluGrad, x[1] * silu_derivative(x[0]))
TSR_MAP_FUNCTOR(QuickGelu, quick_gelu(x[0]))
TSR_MAP_FUNCTOR(QuickGeluGrad, x[1] * quick_gelu_derivative(x[0]))
TSR_MAP_FUNCTOR(Tanh, tanh(x[0]))
TSR_MAP_FUNCTOR(TanhGrad, x[1] * (W(1) - x[0] * x[0]))
TSR_MAP_FUNCTOR(Sigmoid, sigmoid(x[0]))
TSR_MAP_FUNCTOR(SigmoidGrad, x[1] * x[0] * (W(1) - x[0]))
TSR_MAP_FUNCTOR(Swiglu, silu(x[0]) * x[1])
#undef TSR_MAP_FUNCTOR

// gate, up, dy -> dgate, dup
struct SwigluGrad : NoSetUp {
  template <class W>
  __device__ void operator()(int64_t, const W* x, W* y) const {
    y[0] = x[2] * x[1] * silu_derivative(x[0]);
    y[1] = x[2] * silu(x[0]);
  }
};

struct Clamp : NoSetUp {
  double least, most;
  template <class W>
  __device__ void operator()(int64_t, const W* x, W* y) const {
    const W from = static_cast<W>(least), to = static_cast<W>(most);
    y[0] = x[0] < from ? from : x[0] > to ? to : x[0];
  }
};
struct ClampGrad : Clamp {
  template <class W>
  __device__ void operator()(int64_t, const W* x, W* y) const {
    y[0] = x[0] >= static_cast<W>(least) && x[0] <= static_cast<W>(most) ? x[1] : W(0);
  }
};

template <int kIn, class F>
Result<PreparedKernel> clamp_op(const KernelSpec& spec) {
  F f;
  f.least = spec.f64("min");
  f.most = spec.f64("max");
  return map_op<kIn, 1>(spec, [f](const LaunchArgs&, auto) { return f; });
}

template <int kIn, int kOut, class F>
Result<PreparedKernel> plain(const KernelSpec& spec) {
  return map_op<kIn, kOut>(spec, [](const LaunchArgs&, auto) { return F{}; });
}

// An activation that a gemv may end with.
template <int kIn, class F>
Result<PreparedKernel> ending(const KernelSpec& spec, MapKind kind) {
  TSR_ASSIGN_OR_RETURN(PreparedKernel prepared, (plain<kIn, 1, F>(spec)));
  return as_decode_step(std::move(prepared), {spec.input_dtype(0), MapStep{kind, spec.output_elements(0)}});
}

}  // namespace

Result<PreparedKernel> prepare_relu(const KernelSpec& spec) { return ending<1, Relu>(spec, MapKind::kRelu); }
Result<PreparedKernel> prepare_relu_grad(const KernelSpec& spec) { return plain<2, 1, ReluGrad>(spec); }
Result<PreparedKernel> prepare_gelu(const KernelSpec& spec) {
  return spec.string("approximate") == "tanh" ? ending<1, GeluTanh>(spec, MapKind::kGeluTanh)
                                              : ending<1, GeluExact>(spec, MapKind::kGeluExact);
}
Result<PreparedKernel> prepare_gelu_grad(const KernelSpec& spec) {
  return spec.string("approximate") == "tanh" ? plain<2, 1, GeluTanhGrad>(spec)
                                              : plain<2, 1, GeluExactGrad>(spec);
}
Result<PreparedKernel> prepare_silu(const KernelSpec& spec) { return ending<1, Silu>(spec, MapKind::kSilu); }
Result<PreparedKernel> prepare_silu_grad(const KernelSpec& spec) { return plain<2, 1, SiluGrad>(spec); }
Result<PreparedKernel> prepare_quick_gelu(const KernelSpec& spec) { return plain<1, 1, QuickGelu>(spec); }
Result<PreparedKernel> prepare_quick_gelu_grad(const KernelSpec& spec) {
  return plain<2, 1, QuickGeluGrad>(spec);
}
Result<PreparedKernel> prepare_clamp(const KernelSpec& spec) { return clamp_op<1, Clamp>(spec); }
Result<PreparedKernel> prepare_clamp_grad(const KernelSpec& spec) { return clamp_op<2, ClampGrad>(spec); }
Result<PreparedKernel> prepare_tanh(const KernelSpec& spec) { return plain<1, 1, Tanh>(spec); }
Result<PreparedKernel> prepare_tanh_grad(const KernelSpec& spec) { return plain<2, 1, TanhGrad>(spec); }
Result<PreparedKernel> prepare_sigmoid(const KernelSpec& spec) { return plain<1, 1, Sigmoid>(spec); }
Result<PreparedKernel> prepare_sigmoid_grad(const KernelSpec& spec) { return plain<2, 1, SigmoidGrad>(spec); }
Result<PreparedKernel> prepare_swiglu(const KernelSpec& spec) {
  return ending<2, Swiglu>(spec, MapKind::kSwiglu);
}
Result<PreparedKernel> prepare_swiglu_grad(const KernelSpec& spec) { return plain<3, 2, SwigluGrad>(spec); }

}  // namespace tessera::cuda
