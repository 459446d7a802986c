#include <algorithm>

#include "runtime/backends/cpu/kernels/activation_math.h"
#include "runtime/backends/cpu/kernels/elementwise.h"
#include "runtime/backends/cpu/kernels/kernels.h"
#include "runtime/backends/cpu/kernels/product_operand.h"

namespace tessera::cpu {

namespace {

constexpr int64_t kRowsPerTask = 8, kColumnsPerTask = 64;

// Tiles of a [rows, columns] result; body(row_begin, row_end, column_begin, column_end).
template <class Body>
void for_each_tile(const Pool& pool, int64_t rows, int64_t columns, Body&& body) {
  const int64_t across = (columns + kColumnsPerTask - 1) / kColumnsPerTask;
  const int64_t down = (rows + kRowsPerTask - 1) / kRowsPerTask;
  if (across * down == 0) return;
  pool.parallel_for(across * down, [&](int64_t task) {
    const int64_t row = task / across * kRowsPerTask, column = task % across * kColumnsPerTask;
    body(row, std::min(row + kRowsPerTask, rows), column, std::min(column + kColumnsPerTask, columns));
  });
}

double same(double x) { return x; }
double rectify(double x) { return x > 0 ? x : 0; }

using Activation = double (*)(double);
Result<Activation> activation_named(std::string_view name) {
  if (name == "none") return Activation{same};
  if (name == "relu") return Activation{rectify};
  if (name == "gelu") return Activation{gelu_tanh};
  if (name == "silu") return Activation{silu};
  return Status(StatusCode::kUnsupported, format("activation '{}' is not known to this kernel", name));
}

struct Product {
  int64_t rows, columns, inner, k_step, n_step;  // steps through w

  explicit Product(const KernelSpec& spec)
      : columns(spec.output_dims(0).back()), inner(spec.input_dims(0).back()) {
    const bool trans = spec.i64("trans_w") == 1;
    rows = columns == 0 ? 0 : spec.output_elements(0) / columns;
    k_step = trans ? 1 : columns;
    n_step = trans ? inner : 1;
  }
  double flops() const {
    return 2.0 * static_cast<double>(rows) * static_cast<double>(columns) * static_cast<double>(inner);
  }
};

// y = activation(x w + bias + addend); `pre` gets the value before activation. Pointers may be null, y may be
// addend. Sums in double, k ascending.
template <class T>
void multiply(const Pool& pool, const Product& p, ProductOperand operand, const T* x, const T* w,
              const T* bias, const T* addend, Activation activation, T* y, T* pre) {
  for_each_tile(pool, p.rows, p.columns, [&](int64_t m, int64_t m_end, int64_t n0, int64_t n_end) {
    for (; m < m_end; ++m) {
      double sum[kColumnsPerTask];
      for (int64_t n = n0; n < n_end; ++n) sum[n - n0] = bias ? static_cast<double>(bias[n]) : 0;
      for (int64_t k = 0; k < p.inner; ++k) {
        const double xk = operand(x[m * p.inner + k]);
        for (int64_t n = n0; n < n_end; ++n) sum[n - n0] += xk * operand(w[k * p.k_step + n * p.n_step]);
      }
      for (int64_t n = n0; n < n_end; ++n) {
        const int64_t at = m * p.columns + n;
        // Rounded as by a product and an addition.
        if (addend)
          sum[n - n0] = static_cast<double>(static_cast<T>(sum[n - n0])) + static_cast<double>(addend[at]);
        if (pre) pre[at] = static_cast<T>(sum[n - n0]);
        y[at] = static_cast<T>(activation(sum[n - n0]));
      }
    }
  });
}

}  // namespace

// x [M, K], w [K, N] or [N, K], bias [N] -> y [M, N], pre [M, N]. When k is split, the shard at offset 0
// alone adds the bias.
Result<PreparedKernel> prepare_matmul(const KernelSpec& spec) {
  TSR_ASSIGN_OR_RETURN(const Activation activation, activation_named(spec.string("activation")));
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    const Product product(spec);
    const ProductOperand operand(spec);
    const bool has_pre = spec.output_count() == 2;
    const bool has_bias = spec.input_count() == 3 && spec.factor('k').begin[0] == 0;
    auto kernel = make_kernel([=](const LaunchArgs& args) {
      multiply<T>(args.pool, product, operand, args.in<T>(0), args.in<T>(1),
                  has_bias ? args.in<T>(2) : nullptr, nullptr, activation, args.out<T>(0),
                  has_pre ? args.out<T>(1) : nullptr);
    });
    return reference_kernel(spec, product.flops(), std::move(kernel));
  });
}

// x [M, K], w [K, N] or [N, K], addend [M, N], bias [N] -> y [M, N]. When k is split, the shard at offset 0
// alone adds addend and bias.
Result<PreparedKernel> prepare_matmul_add(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    const Product product(spec);
    const ProductOperand operand(spec);
    const bool adds = spec.factor('k').begin[0] == 0, has_bias = adds && spec.input_count() == 4;
    auto kernel = make_kernel([=](const LaunchArgs& args) {
      multiply<T>(args.pool, product, operand, args.in<T>(0), args.in<T>(1),
                  has_bias ? args.in<T>(3) : nullptr, adds ? args.in<T>(2) : nullptr, same, args.out<T>(0),
                  nullptr);
    });
    return reference_kernel(spec, product.flops(), std::move(kernel));
  });
}

// x [M, K], dy [M, N] -> dw [K, N], or [N, K] when trans_w = 1. Summed in double, m ascending.
Result<PreparedKernel> prepare_matmul_weight_grad(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    // dw^T = dy^T x is the same product with the operands exchanged.
    const int left = spec.i64("trans_w") == 1 ? 1 : 0, right = 1 - left;
    const int64_t rows = spec.input_dims(left).back(), columns = spec.input_dims(right).back();
    int64_t inner = 1;
    const ProductOperand operand(spec);
    for (int64_t extent : spec.input_dims(0).first(spec.input_dims(0).size() - 1)) inner *= extent;
    auto kernel = make_kernel([=](const LaunchArgs& args) {
      const T *a = args.in<T>(left), *b = args.in<T>(right);
      T* out = args.out<T>(0);
      for_each_tile(args.pool, rows, columns, [&](int64_t row, int64_t row_end, int64_t n0, int64_t n_end) {
        for (; row < row_end; ++row) {
          double sum[kColumnsPerTask] = {};
          for (int64_t m = 0; m < inner; ++m) {
            const double am = operand(a[m * rows + row]);
            for (int64_t n = n0; n < n_end; ++n) sum[n - n0] += am * operand(b[m * columns + n]);
          }
          for (int64_t n = n0; n < n_end; ++n) out[row * columns + n] = static_cast<T>(sum[n - n0]);
        }
      });
    });
    const double flops =
        2.0 * static_cast<double>(rows) * static_cast<double>(columns) * static_cast<double>(inner);
    return reference_kernel(spec, flops, std::move(kernel));
  });
}

}  // namespace tessera::cpu
