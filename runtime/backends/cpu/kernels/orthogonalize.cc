// orthogonalize (graph/ops/orthogonalize.cc): in double, and in f32 on the packed Gemm.
#include <algorithm>
#include <cmath>
#include <vector>

#include "runtime/backends/cpu/kernels/elementwise.h"
#include "runtime/backends/cpu/kernels/gemm.h"
#include "runtime/backends/cpu/kernels/optimizer_kernels.h"
#include "runtime/backends/cpu/kernels/product_operand.h"
#include "runtime/backends/cpu/kernels/simd_targets.h"

namespace tessera::cpu {

namespace {

// Muon's coefficients: x, x^3 and x^5 of a singular value.
constexpr double kLinear = 3.4445, kCubic = -4.7750, kQuintic = 2.0315;

struct Iteration {
  int64_t rows, columns, least, steps;
  double eps;

  explicit Iteration(const KernelSpec& spec)
      : rows(spec.input_dims(0)[0]),
        columns(spec.input_dims(0)[1]),
        least(std::min(rows, columns)),
        steps(spec.i64("steps")),
        eps(spec.f64("eps")) {}
  int64_t elements() const { return rows * columns; }
  int64_t squares() const { return least * least; }
  bool is_wide() const { return rows <= columns; }
  double flops() const {
    const auto s = static_cast<double>(least), l = static_cast<double>(std::max(rows, columns));
    return static_cast<double>(steps) * (4 * s * s * l + 2 * s * s * s + 3 * s * (s + l)) + 3 * s * l;
  }
};

// The factor of x0: one over its norm, from a sum in double in ascending order.
template <class T>
double inverse_norm_of(const T* x, int64_t count, double eps) {
  double squares = 0;
  for (int64_t i = 0; i < count; ++i) squares += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  return 1 / std::max(std::sqrt(squares), eps);
}

// y[m, n] = sum over k of a[m, k] b[k, n], by strides; sums in double.
template <class T>
void multiply_strided(const Pool& pool, ProductOperand operand, int64_t rows, int64_t columns, int64_t inner,
                      const T* a, int64_t a_row, int64_t a_col, const T* b, int64_t b_row, int64_t b_col,
                      T* y) {
  pool.parallel_ranges(rows, 4, [&](int64_t begin, int64_t end) {
    for (int64_t m = begin; m < end; ++m)
      for (int64_t n = 0; n < columns; ++n) {
        double sum = 0;
        for (int64_t k = 0; k < inner; ++k)
          sum += operand(a[m * a_row + k * a_col]) * operand(b[k * b_row + n * b_col]);
        y[m * columns + n] = static_cast<T>(sum);
      }
  });
}

template <class T>
void orthogonalize(const Iteration& it, ProductOperand operand, const LaunchArgs& args) {
  const T* x = args.in<T>(0);
  T* const y = args.out<T>(0);
  T* const moved = static_cast<T*>(args.workspace);
  T* const gram = moved + it.elements();
  T* const square = gram + it.squares();
  const double inverse = inverse_norm_of(x, it.elements(), it.eps);
  for (int64_t i = 0; i < it.elements(); ++i) y[i] = static_cast<T>(static_cast<double>(x[i]) * inverse);
  const int64_t s = it.least, M = it.rows, N = it.columns;
  for (int64_t step = 0; step < it.steps; ++step) {
    if (it.is_wide())
      multiply_strided<T>(args.pool, operand, s, s, N, y, N, 1, y, 1, N, gram);
    else
      multiply_strided<T>(args.pool, operand, s, s, M, y, 1, N, y, N, 1, gram);
    multiply_strided<T>(args.pool, operand, s, s, s, gram, s, 1, gram, s, 1, square);
    for (int64_t i = 0; i < it.squares(); ++i)
      gram[i] =
          static_cast<T>(kCubic * static_cast<double>(gram[i]) + kQuintic * static_cast<double>(square[i]));
    if (it.is_wide())
      multiply_strided<T>(args.pool, operand, M, N, s, gram, s, 1, y, N, 1, moved);
    else
      multiply_strided<T>(args.pool, operand, M, N, s, y, N, 1, gram, s, 1, moved);
    for (int64_t i = 0; i < it.elements(); ++i)
      y[i] = static_cast<T>(kLinear * static_cast<double>(y[i]) + static_cast<double>(moved[i]));
  }
}

// Products of a step, as Gemms over x, which is [rows, columns].
struct IterationGemms {
  Gemm gram, square, move;

  IterationGemms(const Iteration& it, bool tf32) {
    const int64_t s = it.least, M = it.rows, N = it.columns;
    gram = it.is_wide() ? Gemm{.m = s, .n = s, .k = N, .a_row = N, .b_row = 1, .b_col = N}
                        : Gemm{.m = s, .n = s, .k = M, .a_row = 1, .a_col = N, .b_row = N};
    square = Gemm{.m = s, .n = s, .k = s, .a_row = s, .b_row = s};
    move = it.is_wide() ? Gemm{.m = M, .n = N, .k = s, .a_row = s, .b_row = N}
                        : Gemm{.m = M, .n = N, .k = s, .a_row = N, .b_row = s};
    move.adds = true;
    gram.tf32 = square.tf32 = move.tf32 = tf32;
  }
  int64_t workspace_bytes() const {
    return std::max({gemm_workspace_bytes(gram), gemm_workspace_bytes(square), gemm_workspace_bytes(move)});
  }
};

int64_t align_floats(int64_t floats) { return (floats + 15) / 16 * 16; }

template <class Body>
void for_each_element(const Pool& pool, int64_t count, const Body& body) {
  pool.parallel_ranges(count, kElementGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) body(i);
  });
}

void orthogonalize_packed(const Iteration& it, const IterationGemms& gemms, const LaunchArgs& args) {
  const float* x = args.in<float>(0);
  // Steps write the result and the workspace in turn, and the last one the result.
  float *next = args.out<float>(0), *now = static_cast<float*>(args.workspace);
  float* const gram = now + align_floats(it.elements());
  float* const square = gram + align_floats(it.squares());
  void* const workspace = square + align_floats(it.squares());
  if (it.steps % 2 == 0) std::swap(now, next);
  const double inverse = inverse_norm_of(x, it.elements(), it.eps);
  for_each_element(args.pool, it.elements(),
                   [&](int64_t i) { now[i] = static_cast<float>(static_cast<double>(x[i]) * inverse); });
  const bool is_wide = it.is_wide();
  for (int64_t step = 0; step < it.steps; ++step) {
    run_gemm(gemms.gram, {.a = now, .b = now, .c = gram, .workspace = workspace}, args.pool);
    run_gemm(gemms.square, {.a = gram, .b = gram, .c = square, .workspace = workspace}, args.pool);
    for_each_element(args.pool, it.squares(), [&](int64_t i) {
      gram[i] = static_cast<float>(kCubic) * gram[i] + static_cast<float>(kQuintic) * square[i];
    });
    for_each_element(args.pool, it.elements(),
                     [&](int64_t i) { next[i] = static_cast<float>(kLinear) * now[i]; });
    run_gemm(gemms.move,
             {.a = is_wide ? gram : now, .b = is_wide ? now : gram, .c = next, .workspace = workspace},
             args.pool);
    std::swap(now, next);
  }
}

}  // namespace

// x [M, N] -> y [M, N]
Result<PreparedKernel> prepare_orthogonalize(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    const Iteration it(spec);
    const ProductOperand operand(spec);
    PreparedKernel prepared = reference_kernel(spec, it.flops(), make_kernel([=](const LaunchArgs& args) {
                                                 if (it.elements() > 0) orthogonalize<T>(it, operand, args);
                                               }));
    if (it.elements() > 0)
      prepared.workspace_bytes = static_cast<int64_t>(sizeof(T)) * (it.elements() + 2 * it.squares());
    return prepared;
  });
}

// x [M, N] -> y [M, N]
Result<PreparedKernel> prepare_orthogonalize_packed(const KernelSpec& spec) {
  TSR_RETURN_IF_ERROR(require_simd_f32(spec));
  const Iteration it(spec);
  const IterationGemms gemms(it, spec.i64("allow_tf32") == 1);
  PreparedKernel prepared;
  prepared.kernel = make_kernel([=](const LaunchArgs& args) {
    if (it.elements() > 0) orthogonalize_packed(it, gemms, args);
  });
  if (it.elements() > 0)
    prepared.workspace_bytes =
        static_cast<int64_t>(sizeof(float)) * (align_floats(it.elements()) + 2 * align_floats(it.squares())) +
        gemms.workspace_bytes();
  prepared.flops = it.flops();
  prepared.bytes = operand_bytes(spec) * static_cast<double>(it.steps);
  prepared.efficiency = 0.8;  // the products' 0.85, and passes between them
  return prepared;
}

}  // namespace tessera::cpu
