// The reference matmul, for shapes that cuBLASLt declines.
#include "runtime/backends/cuda/kernels/gemm.cuh"
#include "runtime/backends/cuda/kernels/kernels.h"
#include "runtime/backends/cuda/kernels/matmul_finish.cuh"

namespace tessera::cuda {

namespace {

template <class T>
struct StorePlain {
  T* y;
  int64_t N;
  __device__ void operator()(int64_t, int64_t m, int64_t n, Wide<T> sum) const {
    y[m * N + n] = narrow<T>(sum);
  }
};

template <class T>
struct StoreSum {
  const T *addend, *bias;  // null for none; addend may be y
  T* y;
  int64_t N;
  __device__ void operator()(int64_t, int64_t m, int64_t n, Wide<T> sum) const {
    const int64_t at = m * N + n;
    if (bias != nullptr) sum += widen(bias[n]);
    if (addend != nullptr) sum += widen(addend[at]);
    y[at] = narrow<T>(sum);
  }
};

template <class T>
struct StoreGeluGrad {
  const T* pre;
  T* y;
  int64_t N;
  __device__ void operator()(int64_t, int64_t m, int64_t n, Wide<T> sum) const {
    const int64_t at = m * N + n;
    y[at] = narrow<T>(sum * gelu_tanh_derivative(widen(pre[at])));
  }
};

Status check_blocks(const GemmShape& shape) {
  if (gemm_blocks(shape) < (int64_t{1} << 31)) return {};
  return Status(StatusCode::kUnsupported, format("{} blocks of 64 x 64", gemm_blocks(shape)));
}

}  // namespace

// x [M, K], w [K, N] or [N, K], bias [N] -> y [M, N], pre [M, N]. When k is split, the shard at offset 0
// alone adds the bias.
Result<PreparedKernel> prepare_matmul(const KernelSpec& spec) {
  TSR_ASSIGN_OR_RETURN(const MatmulActivation activation, matmul_activation(spec.string("activation")));
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    const bool trans = spec.i64("trans_w") == 1, has_pre = spec.output_count() == 2;
    const bool has_bias = spec.input_count() == 3 && spec.factor('k').begin[0] == 0;
    const int64_t K = spec.input_dims(0).back(), N = spec.output_dims(0).back();
    const int64_t M = N == 0 ? 0 : spec.output_elements(0) / N;
    const GemmShape shape{1, M, N, K, 0, K, 1, 0, trans ? 1 : N, trans ? K : 1};
    TSR_RETURN_IF_ERROR(check_blocks(shape));
    return gemm_prepared(spec, make_kernel([=](const LaunchArgs& args) {
                           launch_gemm(args.stream, shape, args.in<T>(0), args.in<T>(1), WholeGemm{},
                                       StoreActivated<T>{has_bias ? args.in<T>(2) : nullptr, args.out<T>(0),
                                                         has_pre ? args.out<T>(1) : nullptr, N, activation});
                         }),
                         shape);
  });
}

// x [M, K], w [K, N] or [N, K], addend [M, N], bias [N] -> y [M, N]. When k is split, the shard at offset 0
// alone adds addend and bias.
Result<PreparedKernel> prepare_matmul_add(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    const bool trans = spec.i64("trans_w") == 1;
    const bool adds = spec.factor('k').begin[0] == 0, has_bias = adds && spec.input_count() == 4;
    const int64_t K = spec.input_dims(0).back(), N = spec.output_dims(0).back();
    const int64_t M = N == 0 ? 0 : spec.output_elements(0) / N;
    const GemmShape shape{1, M, N, K, 0, K, 1, 0, trans ? 1 : N, trans ? K : 1};
    TSR_RETURN_IF_ERROR(check_blocks(shape));
    return gemm_prepared(spec, make_kernel([=](const LaunchArgs& args) {
                           launch_gemm(args.stream, shape, args.in<T>(0), args.in<T>(1), WholeGemm{},
                                       StoreSum<T>{adds ? args.in<T>(2) : nullptr,
                                                   has_bias ? args.in<T>(3) : nullptr, args.out<T>(0), N});
                         }),
                         shape);
  });
}

// dy [M, K], w [K, N] or [N, K], pre [M, N] -> dpre [M, N]
Result<PreparedKernel> prepare_matmul_gelu_grad(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    const bool trans = spec.i64("trans_w") == 1;
    const int64_t K = spec.input_dims(0).back(), N = spec.output_dims(0).back();
    const int64_t M = N == 0 ? 0 : spec.output_elements(0) / N;
    const GemmShape shape{1, M, N, K, 0, K, 1, 0, trans ? 1 : N, trans ? K : 1};
    TSR_RETURN_IF_ERROR(check_blocks(shape));
    return gemm_prepared(spec, make_kernel([=](const LaunchArgs& args) {
                           launch_gemm(args.stream, shape, args.in<T>(0), args.in<T>(1), WholeGemm{},
                                       StoreGeluGrad<T>{args.in<T>(2), args.out<T>(0), N});
                         }),
                         shape);
  });
}

// x [M, K], dy [M, N] -> dw [K, N], or [N, K] when trans_w = 1
Result<PreparedKernel> prepare_matmul_weight_grad(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    return with_sums_type<T>(spec, [&](auto sum) -> Result<PreparedKernel> {
      using S = decltype(sum);
      // dw^T = dy^T x is the same product with the operands exchanged.
      const int left = spec.i64("trans_w") == 1 ? 1 : 0, right = 1 - left;
      const int64_t M = spec.input_dims(left).back(), N = spec.input_dims(right).back();
      int64_t K = 1;
      for (const int64_t extent : spec.input_dims(0).first(spec.input_dims(0).size() - 1)) K *= extent;
      const GemmShape shape{1, M, N, K, 0, 1, M, 0, N, 1};
      TSR_RETURN_IF_ERROR(check_blocks(shape));
      return gemm_prepared(spec, make_kernel([=](const LaunchArgs& args) {
                             launch_gemm(args.stream, shape, args.in<T>(left), args.in<T>(right), WholeGemm{},
                                         StorePlain<S>{args.out<S>(0), N});
                           }),
                           shape);
    });
  });
}

}  // namespace tessera::cuda
