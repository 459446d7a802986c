// Expert matmuls on the plain cores, for shapes that cuBLASLt declines.
#include "runtime/backends/cuda/kernels/expert_slots.cuh"
#include "runtime/backends/cuda/kernels/gemm.cuh"
#include "runtime/backends/cuda/kernels/kernels.h"

namespace tessera::cuda {

namespace {

// Rows are the slots of all sequences of an expert.
struct RowsTaken : WholeGemm {
  ExpertSlots slots;
  __device__ bool has_row(int64_t expert, int64_t row) const {
    return slots.taken(expert, row / slots.S, row % slots.S);
  }
};
// Terms are the slots of all sequences of an expert.
struct TermsTaken : WholeGemm {
  ExpertSlots slots;
  __device__ bool has_term(int64_t expert, int64_t term) const {
    return slots.taken(expert, term / slots.S, term % slots.S);
  }
};

template <class T>
struct StoreBatch {
  T* y;
  int64_t M, N;
  __device__ void operator()(int64_t batch, int64_t m, int64_t n, Wide<T> sum) const {
    y[(batch * M + m) * N + n] = narrow<T>(sum);
  }
};

}  // namespace

// x [E, B, S, K], w [E, K, N] or [E, N, K], load [E, B] -> y [E, B, S, N]
Result<PreparedKernel> prepare_expert_matmul(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    const auto dims = spec.input_dims(0);
    const int64_t E = dims[0], B = dims[1], S = dims[2], K = dims[3], N = spec.output_dims(0)[3];
    const bool trans = spec.i64("trans_w") == 1, has_load = spec.input_count() == 3;
    if (spec.input_dtype(1) != spec.input_dtype(0))
      return Status(StatusCode::kUnsupported, format("weights of {}", to_text(spec.input_dtype(1))));
    const FactorIndex slots(spec.factor('s'));
    const GemmShape shape{E, B * S, N, K, B * S * K, K, 1, K * N, trans ? 1 : N, trans ? K : 1};
    if (gemm_blocks(shape) >= int64_t{1} << 31)
      return Status(StatusCode::kUnsupported, format("{} blocks of 64 x 64", gemm_blocks(shape)));
    return gemm_prepared(spec, make_kernel([=](const LaunchArgs& args) {
                           RowsTaken rules;
                           rules.slots = {B, S, slots, has_load ? args.in<int32_t>(2) : nullptr};
                           launch_gemm(args.stream, shape, args.in<T>(0), args.in<T>(1), rules,
                                       StoreBatch<T>{args.out<T>(0), B * S, N});
                         }),
                         shape);
  });
}

// x [E, B, S, K], dy [E, B, S, N], load [E, B] -> dw [E, K, N], or [E, N, K] when trans_w = 1
Result<PreparedKernel> prepare_expert_matmul_weight_grad(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    const auto dims = spec.input_dims(0);
    const int64_t E = dims[0], B = dims[1], S = dims[2];
    const int left = spec.i64("trans_w") == 1 ? 1 : 0, right = 1 - left;
    const int64_t M = spec.input_dims(left)[3], N = spec.input_dims(right)[3];
    const bool has_load = spec.input_count() == 3;
    const FactorIndex slots(spec.factor('s'));
    const GemmShape shape{E, M, N, B * S, B * S * M, 1, M, B * S * N, N, 1};
    if (gemm_blocks(shape) >= int64_t{1} << 31)
      return Status(StatusCode::kUnsupported, format("{} blocks of 64 x 64", gemm_blocks(shape)));
    return gemm_prepared(spec, make_kernel([=](const LaunchArgs& args) {
                           TermsTaken rules;
                           rules.slots = {B, S, slots, has_load ? args.in<int32_t>(2) : nullptr};
                           launch_gemm(args.stream, shape, args.in<T>(left), args.in<T>(right), rules,
                                       StoreBatch<T>{args.out<T>(0), M, N});
                         }),
                         shape);
  });
}

}  // namespace tessera::cuda
