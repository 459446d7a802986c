// The steps of Adafactor (graph/ops/adafactor.cc), computed in double.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "graph/base/matrices.h"
#include "runtime/backends/cpu/kernels/elementwise.h"
#include "runtime/backends/cpu/kernels/optimizer_kernels.h"
#include "runtime/backends/cpu/kernels/stochastic_rounding.h"

namespace tessera::cpu {

namespace {

// The reciprocal root of the second moment at an element: operands from `first` on.
template <class T>
class MomentRoots {
 public:
  MomentRoots(const LaunchArgs& args, int first, bool factored, const Matrices& shape, double all_rows)
      : first_(args.in<T>(first)), factored_(factored), shape_(shape), all_rows_(all_rows) {
    if (factored) cols_ = args.in<T>(first + 1), sums_ = args.in<T>(first + 2);
  }
  double operator()(int64_t i) const {
    if (!factored_) return 1 / std::sqrt(static_cast<double>(first_[i]));
    const int64_t row = i / shape_.cols, matrix = row / shape_.rows;
    const double mean = static_cast<double>(sums_[matrix]) / all_rows_;
    return 1 / (std::sqrt(static_cast<double>(first_[row]) / mean) *
                std::sqrt(static_cast<double>(cols_[matrix * shape_.cols + i % shape_.cols])));
  }

 private:
  const T* first_;
  const T *cols_ = nullptr, *sums_ = nullptr;
  bool factored_;
  Matrices shape_;
  double all_rows_;
};

int64_t moment_count(const KernelSpec& spec) { return spec.i64("factored") == 1 ? 3 : 1; }

template <class T, class Rounding>
PreparedKernel adafactor_update(const KernelSpec& spec, const Rounding& rounding) {
  using P = typename Rounding::Element;
  const Matrices shape(spec.input_dims(0));
  const bool factored = spec.i64("factored") == 1;
  const auto all_rows = static_cast<double>(spec.i64("rows")), all = static_cast<double>(spec.i64("count"));
  const double clip_threshold = spec.f64("clip_threshold"), weight_decay = spec.f64("weight_decay");
  const double lr_scale = spec.f64("lr_scale");
  const int scalars = 2 + static_cast<int>(moment_count(spec));
  return reference_kernel(
      spec, 12 * static_cast<double>(shape.elements()), make_kernel([=](const LaunchArgs& args) {
        const P* p_in = args.in<P>(0);
        const T* g_in = args.in<T>(1);
        P* p_out = args.out<P>(0);
        const double rms = std::sqrt(static_cast<double>(*args.in<T>(scalars)) / all);
        const double lr = lr_scale * static_cast<double>(*args.in<T>(scalars + 1));
        const double gscale = static_cast<double>(*args.in<T>(scalars + 2));
        const double factor = gscale / std::max(1.0, rms / clip_threshold);
        const MomentRoots<T> root(args, 2, factored, shape, all_rows);
        args.pool.parallel_ranges(shape.elements(), kElementGrain, [&](int64_t begin, int64_t end) {
          if (gscale == 0) {
            if (p_in != p_out)
              std::memcpy(p_out + begin, p_in + begin, sizeof(P) * static_cast<size_t>(end - begin));
            return;
          }
          Rounding mine = rounding;
          mine.bind(args);
          for (int64_t i = begin; i < end; ++i) {
            const double p = mine.value(p_in[i]), g = static_cast<double>(g_in[i]);
            p_out[i] = mine.rounded(p - lr * (factor * g * root(i) + weight_decay * p), i);
          }
        });
      }));
}

}  // namespace

// g [..., M, N] -> rows [..., M], cols [..., N]
Result<PreparedKernel> prepare_square_sums(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    const Matrices shape(spec.input_dims(0));
    return reference_kernel(
        spec, 4 * static_cast<double>(shape.elements()), make_kernel([shape](const LaunchArgs& args) {
          const T* g = args.in<T>(0);
          T *rows = args.out<T>(0), *cols = args.out<T>(1);
          const int64_t row_grain = std::max<int64_t>(1, kElementGrain / std::max<int64_t>(1, shape.cols));
          args.pool.parallel_ranges(shape.count * shape.rows, row_grain, [&](int64_t begin, int64_t end) {
            for (int64_t row = begin; row < end; ++row) {
              double sum = 0;
              for (int64_t col = 0; col < shape.cols; ++col) {
                const auto value = static_cast<double>(g[row * shape.cols + col]);
                sum += value * value;
              }
              rows[row] = static_cast<T>(sum);
            }
          });
          constexpr int64_t kCols = 64;  // columns of a task
          const int64_t strips = (shape.cols + kCols - 1) / kCols;
          args.pool.parallel_for(shape.count * strips, [&](int64_t task) {
            const int64_t matrix = task / strips, first = task % strips * kCols;
            const int64_t count = std::min(kCols, shape.cols - first);
            std::array<double, kCols> sums{};
            for (int64_t row = 0; row < shape.rows; ++row) {
              const T* at = g + (matrix * shape.rows + row) * shape.cols + first;
              for (int64_t col = 0; col < count; ++col)
                sums[static_cast<size_t>(col)] += static_cast<double>(at[col]) * static_cast<double>(at[col]);
            }
            for (int64_t col = 0; col < count; ++col)
              cols[matrix * shape.cols + first + col] = static_cast<T>(sums[static_cast<size_t>(col)]);
          });
        }));
  });
}

// s, sums, step, gscale -> s
Result<PreparedKernel> prepare_adafactor_moment(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    const int64_t elements = spec.output_elements(0);
    const auto count = static_cast<double>(spec.i64("count"));
    const double decay_rate = spec.f64("decay_rate"), eps = spec.f64("eps");
    return reference_kernel(
        spec, 6 * static_cast<double>(elements), make_kernel([=](const LaunchArgs& args) {
          const T *s = args.in<T>(0), *sums = args.in<T>(1);
          T* out = args.out<T>(0);
          const double fresh = std::pow(static_cast<double>(*args.in<T>(2)), -decay_rate);
          const double gscale = static_cast<double>(*args.in<T>(3));
          args.pool.parallel_ranges(elements, kElementGrain, [&](int64_t begin, int64_t end) {
            for (int64_t i = begin; i < end; ++i)
              out[i] = gscale == 0
                           ? s[i]
                           : static_cast<T>(
                                 (1 - fresh) * static_cast<double>(s[i]) +
                                 fresh * (gscale * gscale * static_cast<double>(sums[i]) / count + eps));
          });
        }));
  });
}

// g, (v | r, c, t), gscale -> []. Partial sums stand in the workspace, one a task, added in order.
Result<PreparedKernel> prepare_adafactor_squares(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    const Matrices shape(spec.input_dims(0));
    const bool factored = spec.i64("factored") == 1;
    const auto all_rows = static_cast<double>(spec.i64("rows"));
    const int scale = 1 + static_cast<int>(moment_count(spec));
    PreparedKernel prepared = reference_kernel(
        spec, 8 * static_cast<double>(shape.elements()), make_kernel([=](const LaunchArgs& args) {
          const T* g = args.in<T>(0);
          const double gscale = static_cast<double>(*args.in<T>(scale));
          const int64_t elements = shape.elements();
          auto* partial = static_cast<double*>(args.workspace);
          const MomentRoots<T> root(args, 1, factored, shape, all_rows);
          args.pool.parallel_ranges(elements, kElementGrain, [&](int64_t begin, int64_t end) {
            double sum = 0;
            for (int64_t i = begin; gscale != 0 && i < end; ++i) {
              const double u = gscale * static_cast<double>(g[i]) * root(i);
              sum += u * u;
            }
            partial[begin / kElementGrain] = sum;
          });
          double total = 0;
          for (int64_t task = 0; task * kElementGrain < elements; ++task) total += partial[task];
          *args.out<T>(0) = static_cast<T>(total);
        }));
    prepared.workspace_bytes =
        static_cast<int64_t>(sizeof(double)) * ((shape.elements() + kElementGrain - 1) / kElementGrain);
    return prepared;
  });
}

// p, g, (v | r, c, t), squares, lr, gscale -> p
Result<PreparedKernel> prepare_adafactor_update(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    return adafactor_update<T>(spec, NearestRounding<T>{});
  });
}

// p bf16, g, (v | r, c, t), squares, lr, gscale, seed -> p
Result<PreparedKernel> prepare_adafactor_update_stochastic(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(1), [&](auto zero) -> Result<PreparedKernel> {
    return adafactor_update<decltype(zero)>(spec, StochasticRounding(spec));
  });
}

}  // namespace tessera::cpu
