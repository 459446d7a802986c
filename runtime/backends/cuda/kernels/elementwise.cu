// Unary and binary functions, scalings and biases.
#include <algorithm>
#include <type_traits>

#include "runtime/backends/cuda/kernels/decode_step.h"
#include "runtime/backends/cuda/kernels/kernels.h"
#include "runtime/backends/cuda/kernels/log_functions.h"
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
TSR_MAP_FUNCTOR(Softplus, (x[0] > W(0) ? x[0] : W(0)) + log1p(exp(x[0] > W(0) ? -x[0] : x[0])))
TSR_MAP_FUNCTOR(Log1mexp, x[0] > W(-0.69314718055994530942) ? log(-expm1(x[0])) : log1p(-exp(x[0])))
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

// Packs go through the rows in order; a thread's column advances by the same amount every time, so that there
// is one division a thread.
template <class T, int kVec>
__global__ void __launch_bounds__(256)
    add_bias_kernel(const T* x, const T* bias, T* y, int64_t packs, int64_t packs_of_row) {
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x, move = step % packs_of_row;
  int64_t pack = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x, column = pack % packs_of_row;
  for (; pack < packs; pack += step) {
    Wide<T> value[kVec], addend[kVec];
    load_pack(x + pack * kVec, value);
    load_pack(bias + column * kVec, addend);
#pragma unroll
    for (int v = 0; v < kVec; ++v) value[v] += addend[v];
    store_pack(y + pack * kVec, value);
    column += move;
    if (column >= packs_of_row) column -= packs_of_row;
  }
}

template <int kIn, class F>
Result<PreparedKernel> plain(const KernelSpec& spec) {
  return map_op<kIn, 1>(spec, [](const LaunchArgs&, auto) { return F{}; });
}

}  // namespace

Result<PreparedKernel> prepare_add(const KernelSpec& spec) {
  TSR_ASSIGN_OR_RETURN(PreparedKernel prepared, (plain<2, Add>(spec)));
  return as_decode_step(std::move(prepared),
                        {spec.input_dtype(0), MapStep{MapKind::kAdd, spec.output_elements(0)}});
}
Result<PreparedKernel> prepare_sub(const KernelSpec& spec) { return plain<2, Sub>(spec); }
Result<PreparedKernel> prepare_mul(const KernelSpec& spec) { return plain<2, Mul>(spec); }
Result<PreparedKernel> prepare_div(const KernelSpec& spec) { return plain<2, Div>(spec); }
Result<PreparedKernel> prepare_exp(const KernelSpec& spec) { return plain<1, Exp>(spec); }
Result<PreparedKernel> prepare_log(const KernelSpec& spec) { return plain<1, Log>(spec); }
Result<PreparedKernel> prepare_softplus(const KernelSpec& spec) { return plain<1, Softplus>(spec); }
Result<PreparedKernel> prepare_log1mexp(const KernelSpec& spec) { return plain<1, Log1mexp>(spec); }
Result<PreparedKernel> prepare_sqrt(const KernelSpec& spec) { return plain<1, Sqrt>(spec); }
Result<PreparedKernel> prepare_square(const KernelSpec& spec) { return plain<1, Square>(spec); }
Result<PreparedKernel> prepare_neg(const KernelSpec& spec) { return plain<1, Neg>(spec); }

Result<PreparedKernel> prepare_scale(const KernelSpec& spec) {
  const double factor = spec.f64("factor");
  return map_op<1, 1>(spec, [factor](const LaunchArgs&, auto) {
    Scale scale;
    scale.factor = factor;
    return scale;
  });
}

// x [...], s [] -> y [...]
Result<PreparedKernel> prepare_scale_by(const KernelSpec& spec) {
  return map_op<1, 1>(spec, [](const LaunchArgs& args, auto zero) {
    using W = Wide<decltype(zero)>;
    return ScaleBy<W>{args.in<W>(1), W(0)};
  });
}

// x [..., N], b [N] -> y [..., N]
Result<PreparedKernel> prepare_add_bias(const KernelSpec& spec) {
  const int64_t count = spec.output_elements(0), width = spec.input_elements(1);
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    const auto by_packs = [=](auto vec) {
      constexpr int kVec = vec;
      return make_kernel([=](const LaunchArgs& args) {
        if (count == 0) return;
        constexpr int kThreads = 256, kWave = 132 * 8;  // blocks that an H100 holds
        const int blocks = std::min(grid_for(count, kThreads * kVec), kWave);
        add_bias_kernel<T, kVec><<<blocks, kThreads, 0, args.stream>>>(
            args.in<T>(0), args.in<T>(1), args.out<T>(0), count / kVec, width / kVec);
      });
    };
    constexpr int kVec = 16 / static_cast<int>(sizeof(T));
    auto plain = by_packs(std::integral_constant<int, 1>{});
    if (width % kVec != 0) return memory_bound(spec, std::move(plain));
    return memory_bound(spec,
                        where_aligned(spec, by_packs(std::integral_constant<int, kVec>{}), std::move(plain)));
  });
}

}  // namespace tessera::cuda
