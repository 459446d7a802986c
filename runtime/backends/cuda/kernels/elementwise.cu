// Unary and binary functions, scalings and biases.
#include "runtime/backends/cuda/kernels/decode_step.h"
#include "runtime/backends/cuda/kernels/kernels.h"
#include "runtime/backends/cuda/kernels/map.cuh"

namespace tessera::cuda {

namespace {

// A functor named `Name` of kIn operands whose result is `expression` of W x[].
#define TSR_MAP_FUNCTOR(Name, expression)                         \
  struct Name : NoSetUp {                                         \
    template <class W>                                            \
    __device__ void operator()(int64_t, const W* x, W* y) const { \
      y[0] = expression;                                          \
    }                                                             \
  };
TSR_MAP_FUNCTOR(Add, x[0] + x[1])
TSR_MAP_FUNCTOR(Sub, x[0] - x[1])
TSR_MAP_FUNCTOR(Mul, x[0] * x[1])
TSR_MAP_FUNCTOR(Div, x[0] / x[1])
TSR_MAP_FUNCTOR(Exp, exp(x[0]))
TSR_MAP_FUNCTOR(Log, log(x[0]))
TSR_MAP_FUNCTOR(Sqrt, sqrt(x[0]))
TSR_MAP_FUNCTOR(Square, x[0] * x[0])
TSR_MAP_FUNCTOR(Neg, -x[0])
#undef TSR_MAP_FUNCTOR

struct Scale : NoSetUp {
  double factor;
  template <class W>
  __device__ void operator()(int64_t, const W* x, W* y) const {
    y[0] = x[0] * W(factor);
  }
};

template <class W>
struct ScaleBy {
  const W* scale;
  W value;
  __device__ void begin() { value = *scale; }
  __device__ void operator()(int64_t, const W* x, W* y) const { y[0] = x[0] * value; }
};

template <class T>
struct AddBias : NoSetUp {
  const T* bias;
  int64_t width;
  __device__ void operator()(int64_t i, const Wide<T>* x, Wide<T>* y) const {
    // Most tensors have fewer than 2^32 elements, whose remainder is a cheap one.
    const int64_t n =
        (i | width) >> 32 == 0 ? static_cast<uint32_t>(i) % static_cast<uint32_t>(width) : i % width;
    y[0] = x[0] + widen(bias[n]);
  }
};

template <int kIn, class F>
Result<Prepared> plain(const KernelSpec& spec) {
  return map_op<kIn, 1>(spec, [](const LaunchArgs&, auto) { return F{}; });
}

}  // namespace

Result<Prepared> prepare_add(const KernelSpec& spec) {
  TSR_ASSIGN_OR_RETURN(Prepared prepared, (plain<2, Add>(spec)));
  return as_decode_step(std::move(prepared),
                        {spec.input_dtype(0), MapStep{MapKind::kAdd, spec.output_elements(0)}});
}
Result<Prepared> prepare_sub(const KernelSpec& spec) { return plain<2, Sub>(spec); }
Result<Prepared> prepare_mul(const KernelSpec& spec) { return plain<2, Mul>(spec); }
Result<Prepared> prepare_div(const KernelSpec& spec) { return plain<2, Div>(spec); }
Result<Prepared> prepare_exp(const KernelSpec& spec) { return plain<1, Exp>(spec); }
Result<Prepared> prepare_log(const KernelSpec& spec) { return plain<1, Log>(spec); }
Result<Prepared> prepare_sqrt(const KernelSpec& spec) { return plain<1, Sqrt>(spec); }
Result<Prepared> prepare_square(const KernelSpec& spec) { return plain<1, Square>(spec); }
Result<Prepared> prepare_neg(const KernelSpec& spec) { return plain<1, Neg>(spec); }

Result<Prepared> prepare_scale(const KernelSpec& spec) {
  const double factor = spec.f64("factor");
  return map_op<1, 1>(spec, [factor](const LaunchArgs&, auto) {
    Scale scale;
    scale.factor = factor;
    return scale;
  });
}

// x [...], s [] -> y [...]
Result<Prepared> prepare_scale_by(const KernelSpec& spec) {
  return map_op<1, 1>(spec, [](const LaunchArgs& args, auto zero) {
    using W = Wide<decltype(zero)>;
    return ScaleBy<W>{args.in<W>(1), W(0)};
  });
}

// x [..., N], b [N] -> y [..., N]
Result<Prepared> prepare_add_bias(const KernelSpec& spec) {
  const int64_t width = spec.input_elements(1);
  return map_op<1, 1>(spec, [width](const LaunchArgs& args, auto zero) {
    using T = decltype(zero);
    AddBias<T> f;
    f.bias = args.in<T>(1);
    f.width = width;
    return f;
  });
}

}  // namespace tessera::cuda
