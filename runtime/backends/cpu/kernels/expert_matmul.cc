#include <algorithm>

#include "runtime/backends/cpu/kernels/expert_rows.h"
#include "runtime/backends/cpu/kernels/kernels.h"
#include "runtime/backends/cpu/kernels/product_operand.h"
#include "runtime/backends/cpu/kernels/row_kernel.h"

namespace tessera::cpu {

// x [E, B, S, K], w [E, K, N] or [E, N, K], load [E, B] -> y [E, B, S, N]. Sums in double, k ascending.
Result<PreparedKernel> prepare_expert_matmul(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    const ExpertRows rows(spec);
    const ProductOperand operand(spec);
    const int64_t K = spec.input_dims(0)[3], N = spec.output_dims(0)[3];
    const bool trans = spec.i64("trans_w") == 1;
    const int64_t k_step = trans ? 1 : N, n_step = trans ? K : 1;
    auto launch = [=](const LaunchArgs& args) {
      const int64_t row_blocks = (rows.S + 7) / 8;
      args.pool.parallel_ranges(rows.E * rows.B * row_blocks, 1, [&](int64_t begin, int64_t end) {
        for (int64_t task = begin; task < end; ++task) {
          const int64_t pair = task / row_blocks, s0 = task % row_blocks * 8;
          const int64_t taken = rows.taken(args, pair / rows.B, pair % rows.B);
          const T *x = args.in<T>(0) + pair * rows.S * K, *w = args.in<T>(1) + pair / rows.B * K * N;
          T* y = args.out<T>(0) + pair * rows.S * N;
          for (int64_t s = s0; s < std::min(rows.S, s0 + 8); ++s)
            for (int64_t n0 = 0; n0 < N; n0 += kColumnBlock) {
              const int64_t width = std::min(kColumnBlock, N - n0);
              double sums[kColumnBlock] = {};
              for (int64_t k = 0; k < (s < taken ? K : 0); ++k) {
                const double xk = operand(x[s * K + k]);
                for (int64_t n = 0; n < width; ++n)
                  sums[n] += xk * operand(w[k * k_step + (n0 + n) * n_step]);
              }
              for (int64_t n = 0; n < width; ++n) y[s * N + n0 + n] = T(sums[n]);
            }
        }
      });
    };
    return reference_kernel(spec, make_kernel(launch), 2.0 * double(rows.E * rows.B * rows.S * K * N));
  });
}

// x [E, B, S, K], dy [E, B, S, N], load [E, B] -> dw [E, K, N], or [E, N, K] when trans_w = 1. Sums in
// double, sequences and slots ascending.
Result<PreparedKernel> prepare_expert_matmul_weight_grad(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    const ExpertRows rows(spec);
    const ProductOperand operand(spec);
    // dw^T = dy^T x is the same product with the operands exchanged.
    const int left = spec.i64("trans_w") == 1 ? 1 : 0, right = 1 - left;
    const int64_t M = spec.input_dims(left)[3], N = spec.input_dims(right)[3];
    auto launch = [=](const LaunchArgs& args) {
      const T *a = args.in<T>(left), *b = args.in<T>(right);
      args.pool.parallel_ranges(rows.E * M, 1, [&](int64_t begin, int64_t end) {
        for (int64_t r = begin; r < end; ++r) {
          const int64_t e = r / M, m = r % M;
          for (int64_t n0 = 0; n0 < N; n0 += kColumnBlock) {
            const int64_t width = std::min(kColumnBlock, N - n0);
            double sums[kColumnBlock] = {};
            for (int64_t q = 0; q < rows.B; ++q) {
              const int64_t first = (e * rows.B + q) * rows.S, taken = rows.taken(args, e, q);
              for (int64_t s = first; s < first + taken; ++s) {
                const double am = operand(a[s * M + m]);
                for (int64_t n = 0; n < width; ++n) sums[n] += am * operand(b[s * N + n0 + n]);
              }
            }
            for (int64_t n = 0; n < width; ++n) args.out<T>(0)[r * N + n0 + n] = T(sums[n]);
          }
        }
      });
    };
    return reference_kernel(spec, make_kernel(launch), 2.0 * double(rows.E * rows.B * rows.S * M * N));
  });
}

}  // namespace tessera::cpu
