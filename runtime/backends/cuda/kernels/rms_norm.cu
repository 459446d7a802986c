#include "runtime/backends/cuda/kernels/columns.cuh"
#include "runtime/backends/cuda/kernels/kernels.h"
#include "runtime/backends/cuda/kernels/rows.cuh"

namespace tessera::cuda {

namespace {

template <class T, int kVec>
struct Forward {
  using W = Wide<T>;
  const T *x, *w;
  T* y;
  W* rstd;
  int64_t cols;
  W eps, inverse;
  template <class Team>
  __device__ void operator()(const Team& team, int64_t row) const {
    const int64_t at = row * cols;
    W squares = 0;
    team.template packs<kVec>(cols, [&](int64_t c) {
      W v[kVec];
      load_pack(x + at + c, v);
      for (int i = 0; i < kVec; ++i) squares += v[i] * v[i];
    });
    const W scale = W(1) / sqrt(team.sum(squares) * inverse + eps);
    team.template packs<kVec>(cols, [&](int64_t c) {
      W v[kVec], weight[kVec];
      load_pack(x + at + c, v);
      load_pack(w + c, weight);
      for (int i = 0; i < kVec; ++i) v[i] *= scale * weight[i];
      store_pack(y + at + c, v);
    });
    if (team.rank == 0) rstd[row] = scale;
  }
};

template <class T, int kVec>
struct GradInput {
  using W = Wide<T>;
  const T *dy, *x, *w;
  const W* rstd;
  T* dx;
  int64_t cols;
  W inverse;
  template <class Team>
  __device__ void operator()(const Team& team, int64_t row) const {
    const int64_t at = row * cols;
    const W scale = rstd[row];
    W projection = 0;  // mean over c of g * xhat
    team.template packs<kVec>(cols, [&](int64_t c) {
      W d[kVec], v[kVec], weight[kVec];
      load_pack(dy + at + c, d);
      load_pack(x + at + c, v);
      load_pack(w + c, weight);
      for (int i = 0; i < kVec; ++i) projection += d[i] * weight[i] * v[i] * scale;
    });
    projection = team.sum(projection) * inverse;
    team.template packs<kVec>(cols, [&](int64_t c) {
      W d[kVec], v[kVec], weight[kVec];
      load_pack(dy + at + c, d);
      load_pack(x + at + c, v);
      load_pack(w + c, weight);
      for (int i = 0; i < kVec; ++i) d[i] = scale * (d[i] * weight[i] - v[i] * scale * projection);
      store_pack(dx + at + c, d);
    });
  }
};

template <class T>
struct WeightTerm {
  using W = Wide<T>;
  const T *dy, *x;
  const W* rstd;
  int64_t cols;
  __device__ void operator()(int64_t row, int64_t c, W* sums) const {
    sums[0] += widen(dy[row * cols + c]) * widen(x[row * cols + c]) * rstd[row];
  }
};

}  // namespace

// x [R, C], w [C] -> y [R, C], rstd [R]
Result<Prepared> prepare_rms_norm(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<Prepared> {
    using T = decltype(zero);
    using W = Wide<T>;
    const Rows rows = rows_of(spec.input_dims(0));
    const double eps = spec.f64("eps"), inverse = 1 / double(rows.cols > 1 ? rows.cols : 1);
    return by_packed_rows<T>(spec, rows.count, rows.cols, [=](const LaunchArgs& args, auto packed) {
      return Forward<T, packed.value>{args.in<T>(0), args.in<T>(1), args.out<T>(0), args.out<W>(1),
                                      rows.cols,     W(eps),        W(inverse)};
    });
  });
}

// dy, x [R, C], w [C], rstd [R] -> dx [R, C]
Result<Prepared> prepare_rms_norm_grad_input(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<Prepared> {
    using T = decltype(zero);
    using W = Wide<T>;
    const Rows rows = rows_of(spec.input_dims(0));
    const double inverse = 1 / double(rows.cols > 1 ? rows.cols : 1);
    return by_packed_rows<T>(spec, rows.count, rows.cols, [=](const LaunchArgs& args, auto packed) {
      return GradInput<T, packed.value>{args.in<T>(0),  args.in<T>(1), args.in<T>(2), args.in<W>(3),
                                        args.out<T>(0), rows.cols,     W(inverse)};
    });
  });
}

// dy, x [R, C], rstd [R] -> dw [C]
Result<Prepared> prepare_rms_norm_grad_weight(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<Prepared> {
    using T = decltype(zero);
    using W = Wide<T>;
    const Rows rows = rows_of(spec.input_dims(0));
    const ColumnChunks shape(rows.count, rows.cols);
    return memory_bound(spec, make_kernel([=](const LaunchArgs& args) {
                          const WeightTerm<T> term{args.in<T>(0), args.in<T>(1), args.in<W>(2), rows.cols};
                          launch_columns<T, 1>(args, shape, term, {{args.out<T>(0), nullptr}});
                        }),
                        shape.workspace_bytes<W>(1));
  });
}

}  // namespace tessera::cuda
