#include <algorithm>

#include "graph/base/blocks/block_codec.h"
#include "runtime/backends/cpu/kernels/expert_rows.h"
#include "runtime/backends/cpu/kernels/kernels.h"
#include "runtime/backends/cpu/kernels/product_operand.h"
#include "runtime/backends/cpu/kernels/rounded_block.h"
#include "runtime/backends/cpu/kernels/row_kernel.h"

namespace tessera::cpu {

namespace {

// The weight of an expert that is stored in 16 bits or blocks, decoded a row at a time: w [E, N, K]. Sums in
// double, k ascending.
template <class T>
PreparedKernel prepare_stored_rows(const KernelSpec& spec, const ExpertRows& rows, int64_t K, int64_t N) {
  const DType stored = spec.input_dtype(1);
  const int64_t row_bytes = dtype_bytes(stored, K);
  const bool rounds = spec.string("activations") == "q8";
  auto launch = [=](const LaunchArgs& args) {
    args.pool.parallel_ranges(rows.E * N, 16, [&](int64_t begin, int64_t end) {
      Scratch scratch(args.pool, std::max<int64_t>(1, K));
      float* row = scratch.floats(K);
      for (int64_t r = begin; r < end; ++r) {
        const int64_t e = r / N, n = r % N;
        const std::byte* blocks = args.in<std::byte>(1) + r * row_bytes;
        decode_blocks(stored, blocks, row, K);
        for (int64_t b = 0; b < rows.B; ++b) {
          const int64_t first = (e * rows.B + b) * rows.S, taken = rows.taken(args, e, b);
          for (int64_t s = 0; s < rows.S; ++s) {
            const T* x = args.in<T>(0) + (first + s) * K;
            double sum = 0;
            if (s < taken && rounds) sum = add_rounded_products(stored, blocks, row, x, K, 0);
            if (s < taken && !rounds)
              for (int64_t k = 0; k < K; ++k) sum += static_cast<double>(x[k]) * static_cast<double>(row[k]);
            args.out<T>(0)[(first + s) * N + n] = static_cast<T>(sum);
          }
        }
      }
    });
  };
  return reference_kernel(spec, make_kernel(launch), 2.0 * double(rows.E * rows.B * rows.S * K * N));
}

// Likewise for w [E, K, N].
template <class T>
PreparedKernel prepare_stored_columns(const KernelSpec& spec, const ExpertRows& rows, int64_t K, int64_t N) {
  constexpr int64_t kTile = 256;  // the largest block
  const DType stored = spec.input_dtype(1);
  const int64_t row_bytes = dtype_bytes(stored, N), tiles = (N + kTile - 1) / kTile;
  auto launch = [=](const LaunchArgs& args) {
    args.pool.parallel_ranges(rows.E * rows.B * tiles, 1, [&](int64_t begin, int64_t end) {
      for (int64_t task = begin; task < end; ++task) {
        const int64_t pair = task / tiles, n0 = task % tiles * kTile, width = std::min(kTile, N - n0);
        const int64_t e = pair / rows.B, taken = rows.taken(args, e, pair % rows.B);
        const std::byte* w = args.in<std::byte>(1) + e * K * row_bytes + dtype_bytes(stored, n0);
        for (int64_t s = 0; s < rows.S; ++s) {
          const T* x = args.in<T>(0) + (pair * rows.S + s) * K;
          double sums[kTile] = {};
          float row[kTile];
          for (int64_t k = 0; k < (s < taken ? K : 0); ++k) {
            decode_blocks(stored, w + k * row_bytes, row, width);
            for (int64_t n = 0; n < width; ++n)
              sums[n] += static_cast<double>(x[k]) * static_cast<double>(row[n]);
          }
          for (int64_t n = 0; n < width; ++n)
            args.out<T>(0)[(pair * rows.S + s) * N + n0 + n] = static_cast<T>(sums[n]);
        }
      }
    });
  };
  return reference_kernel(spec, make_kernel(launch), 2.0 * double(rows.E * rows.B * rows.S * K * N));
}

}  // namespace

// x [E, B, S, K], w [E, K, N] or [E, N, K], load [E, B] -> y [E, B, S, N]. Sums in double, k ascending.
Result<PreparedKernel> prepare_expert_matmul(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    const ExpertRows rows(spec);
    const ProductOperand operand(spec);
    const int64_t K = spec.input_dims(0)[3], N = spec.output_dims(0)[3];
    const bool trans = spec.i64("trans_w") == 1;
    if (spec.input_dtype(1) != spec.input_dtype(0))
      return trans ? prepare_stored_rows<T>(spec, rows, K, N) : prepare_stored_columns<T>(spec, rows, K, N);
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
