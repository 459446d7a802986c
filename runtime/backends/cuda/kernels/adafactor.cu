// The steps of Adafactor (graph/ops/adafactor.cc). Plain: a thread an element or a column, a team a row.
#include "graph/base/matrices.h"
#include "runtime/backends/cuda/kernels/optimizer_kernels.h"
#include "runtime/backends/cuda/kernels/rows.cuh"
#include "runtime/backends/cuda/kernels/stochastic_rounding.cuh"

namespace tessera::cuda {

namespace {

template <class T>
struct RowSquares {
  const T* g;
  Wide<T>* sums;
  int64_t cols;
  template <class Team>
  __device__ void operator()(const Team& team, int64_t row) const {
    Wide<T> sum = 0;
    team.each(cols, [&](int64_t col) {
      const Wide<T> value = widen(g[row * cols + col]);
      sum += value * value;
    });
    sum = team.sum(sum);
    if (team.rank == 0) sums[row] = sum;
  }
};

template <class T>
struct ColumnSquares {
  const T* g;
  Wide<T>* sums;
  int64_t rows, cols;
  __device__ void operator()(int64_t i) const {
    const T* at = g + i / cols * rows * cols + i % cols;
    Wide<T> sum = 0;
    for (int64_t row = 0; row < rows; ++row) {
      const Wide<T> value = widen(at[row * cols]);
      sum += value * value;
    }
    sums[i] = sum;
  }
};

template <class W>
struct Moment {
  const W *s, *sums, *step, *gscale;
  W* out;
  double decay_rate;
  W count, eps;
  __device__ void operator()(int64_t i) const {
    const W scale = *gscale;
    if (scale == W(0)) {
      out[i] = s[i];
      return;
    }
    const W fresh = static_cast<W>(pow(static_cast<double>(*step), -decay_rate));
    out[i] = (W(1) - fresh) * s[i] + fresh * (scale * scale * sums[i] / count + eps);
  }
};

// The root of the second moment at an element. Roots are taken before the product, which may underflow.
template <class W>
struct MomentRoots {
  const W *first, *cols_moment, *row_sums;
  bool factored;
  int64_t rows, cols;
  W all_rows;

  MomentRoots(const LaunchArgs& args, int at, bool factored, const Matrices& shape, int64_t all_rows)
      : first(args.in<W>(at)),
        cols_moment(factored ? args.in<W>(at + 1) : nullptr),
        row_sums(factored ? args.in<W>(at + 2) : nullptr),
        factored(factored),
        rows(shape.rows),
        cols(shape.cols),
        all_rows(static_cast<W>(all_rows)) {}
  __device__ W operator()(int64_t i) const {
    if (!factored) return sqrt(first[i]);
    const int64_t row = i / cols, matrix = row / rows;
    return sqrt(first[row] / (row_sums[matrix] / all_rows)) * sqrt(cols_moment[matrix * cols + i % cols]);
  }
};

// Sums of squares of a row of U, in double.
template <class T>
struct UpdateSquares {
  const T* g;
  const Wide<T>* gscale;
  double* partial;
  MomentRoots<Wide<T>> root;
  template <class Team>
  __device__ void operator()(const Team& team, int64_t row) const {
    double sum = 0;
    const Wide<T> scale = *gscale;
    if (scale != Wide<T>(0))
      team.each(root.cols, [&](int64_t col) {
        const int64_t i = row * root.cols + col;
        const double u = scale * widen(g[i]) / root(i);
        sum += u * u;
      });
    sum = team.sum(sum);
    if (team.rank == 0) partial[row] = sum;
  }
};

template <class W>
struct TotalSquares {
  const double* partial;
  W* out;
  int64_t count;
  template <class Team>
  __device__ void operator()(const Team& team, int64_t) const {
    double sum = 0;
    team.each(count, [&](int64_t i) { sum += partial[i]; });
    sum = team.sum(sum);
    if (team.rank == 0) *out = static_cast<W>(sum);
  }
};

// P: the parameter's type, T: the gradient's.
template <class P, class T, class Rounding>
struct Update {
  using W = Wide<T>;
  const P* p;
  const T* g;
  P* out;
  const W *squares, *lr, *gscale;
  MomentRoots<W> root;
  W all, clip_threshold, weight_decay, lr_scale;
  mutable Rounding rounding;
  __device__ void operator()(int64_t i) const {
    const W scale = *gscale;
    if (scale == W(0)) {
      out[i] = p[i];
      return;
    }
    rounding.begin();
    const W rms = sqrt(*squares / all), above = rms / clip_threshold, value = widen(p[i]);
    const W u = scale * widen(g[i]) / root(i) / (above > W(1) ? above : W(1));
    out[i] = narrow<P>(rounding(i, value - *lr * lr_scale * (u + weight_decay * value)));
  }
};

int moment_count(const KernelSpec& spec) { return spec.i64("factored") == 1 ? 3 : 1; }

template <class P, class T, class Rounding>
Result<PreparedKernel> adafactor_update(const KernelSpec& spec, const Rounding& rounding) {
  using W = Wide<T>;
  const Matrices shape(spec.input_dims(0));
  const bool factored = spec.i64("factored") == 1;
  const int64_t all_rows = spec.i64("rows");
  const W all = static_cast<W>(spec.i64("count")), clip_threshold = W(spec.f64("clip_threshold"));
  const W weight_decay = W(spec.f64("weight_decay")), lr_scale = W(spec.f64("lr_scale"));
  const int scalars = 2 + moment_count(spec);
  return memory_bound(spec, make_kernel([=](const LaunchArgs& args) {
                        Rounding mine = rounding;
                        if constexpr (Rounding::kHasSeed) mine.bind(args.inputs[scalars + 3]);
                        launch_each(args.stream, shape.elements(),
                                    Update<P, T, Rounding>{args.in<P>(0), args.in<T>(1), args.out<P>(0),
                                                           args.in<W>(scalars), args.in<W>(scalars + 1),
                                                           args.in<W>(scalars + 2),
                                                           MomentRoots<W>(args, 2, factored, shape, all_rows),
                                                           all, clip_threshold, weight_decay, lr_scale, mine});
                      }));
}

}  // namespace

// g [..., M, N] -> rows [..., M], cols [..., N]
Result<PreparedKernel> prepare_square_sums(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    const Matrices shape(spec.input_dims(0));
    return memory_bound(spec, make_kernel([=](const LaunchArgs& args) {
                          launch_rows(args.stream, shape.count * shape.rows, shape.cols,
                                      RowSquares<T>{args.in<T>(0), args.out<Wide<T>>(0), shape.cols});
                          launch_each(args.stream, shape.count * shape.cols,
                                      ColumnSquares<T>{args.in<T>(0), args.out<Wide<T>>(1), shape.rows,
                                                       shape.cols});
                        }));
  });
}

// s, sums, step, gscale -> s
Result<PreparedKernel> prepare_adafactor_moment(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using W = Wide<decltype(zero)>;
    const int64_t elements = spec.output_elements(0);
    const double decay_rate = spec.f64("decay_rate");
    const W count = static_cast<W>(spec.i64("count")), eps = W(spec.f64("eps"));
    return memory_bound(spec, make_kernel([=](const LaunchArgs& args) {
                          launch_each(args.stream, elements,
                                      Moment<W>{args.in<W>(0), args.in<W>(1), args.in<W>(2), args.in<W>(3),
                                                args.out<W>(0), decay_rate, count, eps});
                        }));
  });
}

// g, (v | r, c, t), gscale -> []
Result<PreparedKernel> prepare_adafactor_squares(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    using W = Wide<T>;
    const Matrices shape(spec.input_dims(0));
    const bool factored = spec.i64("factored") == 1;
    const int64_t all_rows = spec.i64("rows"), rows = shape.count * shape.rows;
    const int scale = 1 + moment_count(spec);
    return memory_bound(spec, make_kernel([=](const LaunchArgs& args) {
                          auto* partial = static_cast<double*>(args.workspace);
                          launch_rows(args.stream, rows, shape.cols,
                                      UpdateSquares<T>{args.in<T>(0), args.in<W>(scale), partial,
                                                       MomentRoots<W>(args, 1, factored, shape, all_rows)});
                          launch_rows(args.stream, 1, rows, TotalSquares<W>{partial, args.out<W>(0), rows});
                        }),
                        rows * static_cast<int64_t>(sizeof(double)));
  });
}

// p, g, (v | r, c, t), squares, lr, gscale -> p
Result<PreparedKernel> prepare_adafactor_update(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    return adafactor_update<T, T>(spec, NearestRounding{});
  });
}

// p bf16, g, (v | r, c, t), squares, lr, gscale, seed -> p
Result<PreparedKernel> prepare_adafactor_update_stochastic(const KernelSpec& spec) {
  TSR_ASSIGN_OR_RETURN(const StochasticRounding rounding, stochastic_rounding(spec));
  return adafactor_update<__nv_bfloat16, float>(spec, rounding);
}

}  // namespace tessera::cuda
