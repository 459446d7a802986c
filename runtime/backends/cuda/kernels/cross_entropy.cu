#include "runtime/backends/cuda/kernels/factor_index.cuh"
#include "runtime/backends/cuda/kernels/kernels.h"
#include "runtime/backends/cuda/kernels/rows.cuh"

namespace tessera::cuda {

namespace {

// exp(x - m), 0 for x = -inf also where the whole row is -inf.
template <class W>
__device__ W exp_above(W x, W m) {
  return x == minus_infinity<W>() ? W(0) : exp(x - m);
}

// A NaN in the row makes the maximum NaN, so that a broken loss shows.
template <class T, int kVec>
struct RowMax {
  using W = Wide<T>;
  const T* x;
  W* m;
  int64_t cols;
  template <class Team>
  __device__ void operator()(const Team& team, int64_t row) const {
    W top = minus_infinity<W>();
    team.template packs<kVec>(cols, [&](int64_t c) {
      W v[kVec];
      load_pack(x + row * cols + c, v);
      for (int i = 0; i < kVec; ++i) top = Larger{}(top, v[i]);
    });
    top = team.max(top);
    if (team.rank == 0) m[row] = top;
  }
};

template <class T, int kVec>
struct RowSumExp {
  using W = Wide<T>;
  const T* x;
  const W* m;
  W* s;
  int64_t cols;
  template <class Team>
  __device__ void operator()(const Team& team, int64_t row) const {
    const W top = m[row];
    W sum = 0;
    team.template packs<kVec>(cols, [&](int64_t c) {
      W v[kVec];
      load_pack(x + row * cols + c, v);
      for (int i = 0; i < kVec; ++i) sum += exp_above(v[i], top);
    });
    sum = team.sum(sum);
    if (team.rank == 0) s[row] = sum;
  }
};

template <class T>
struct Pick {
  const T* x;
  const int32_t* labels;
  Wide<T>* picked;
  int64_t cols;
  FactorIndex v;
  __device__ void operator()(int64_t row) const {
    const int64_t at = v.to_local(labels[row]);
    picked[row] = at >= 0 && at < cols ? widen(x[row * cols + at]) : Wide<T>(0);
  }
};

template <class W>
struct Loss {
  const int32_t* labels;
  const W *m, *s, *picked;
  W* loss;
  __device__ void operator()(int64_t row) const {
    loss[row] = labels[row] < 0 ? W(0) : log(s[row]) + m[row] - picked[row];
  }
};

template <class T, int kVec>
struct Grad {
  using W = Wide<T>;
  const T* x;
  const int32_t* labels;
  const W *m, *s, *dloss;
  T* dx;
  int64_t cols;
  FactorIndex v;
  template <class Team>
  __device__ void operator()(const Team& team, int64_t row) const {
    const int64_t at = row * cols, label = v.to_local(labels[row]);
    const bool counts = labels[row] >= 0;
    const W top = m[row], sum = s[row], scale = dloss[row];
    team.template packs<kVec>(cols, [&](int64_t c) {
      W v[kVec];
      load_pack(x + at + c, v);
      for (int i = 0; i < kVec; ++i) {
        const W p = exp_above(v[i], top) / sum;
        v[i] = counts ? (p - (c + i == label ? W(1) : W(0))) * scale : W(0);
      }
      store_pack(dx + at + c, v);
    });
  }
};

}  // namespace

// x [R, V] -> m [R]
Result<PreparedKernel> prepare_row_max(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    const Rows rows = rows_of(spec.input_dims(0));
    return by_packed_rows<T>(spec, rows.count, rows.cols, [=](const LaunchArgs& args, auto packed) {
      return RowMax<T, packed.value>{args.in<T>(0), args.out<Wide<T>>(0), rows.cols};
    });
  });
}

// x [R, V], m [R] -> s [R]
Result<PreparedKernel> prepare_row_sum_exp(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    const Rows rows = rows_of(spec.input_dims(0));
    return by_packed_rows<T>(spec, rows.count, rows.cols, [=](const LaunchArgs& args, auto packed) {
      return RowSumExp<T, packed.value>{args.in<T>(0), args.in<Wide<T>>(1), args.out<Wide<T>>(0), rows.cols};
    });
  });
}

// x [R, V], labels [R] -> picked [R]
Result<PreparedKernel> prepare_pick(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    const Rows rows = rows_of(spec.input_dims(0));
    const FactorIndex v(spec.factor('v'));
    return memory_bound(
        spec, make_kernel([=](const LaunchArgs& args) {
          launch_each(args.stream, rows.count,
                      Pick<T>{args.in<T>(0), args.in<int32_t>(1), args.out<Wide<T>>(0), rows.cols, v});
        }));
  });
}

// x (its shape alone), labels, m, s, picked [R] -> loss [R]
Result<PreparedKernel> prepare_cross_entropy(const KernelSpec& spec) {
  return dispatch_float(spec.output_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using W = Wide<decltype(zero)>;
    const int64_t rows = spec.output_elements(0);
    PreparedKernel prepared = memory_bound(
        spec, make_kernel([=](const LaunchArgs& args) {
          launch_each(
              args.stream, rows,
              Loss<W>{args.in<int32_t>(1), args.in<W>(2), args.in<W>(3), args.in<W>(4), args.out<W>(0)});
        }));
    prepared.bytes = operand_bytes(spec, 0);
    return std::move(prepared);
  });
}

// x [R, V], labels, m, s, dloss [R] -> dx [R, V], which may be x itself
Result<PreparedKernel> prepare_cross_entropy_grad(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    using W = Wide<T>;
    const Rows rows = rows_of(spec.input_dims(0));
    const FactorIndex v(spec.factor('v'));
    return by_packed_rows<T>(spec, rows.count, rows.cols, [=](const LaunchArgs& args, auto packed) {
      return Grad<T, packed.value>{args.in<T>(0), args.in<int32_t>(1), args.in<W>(2), args.in<W>(3),
                                   args.in<W>(4), args.out<T>(0),      rows.cols,     v};
    });
  });
}

}  // namespace tessera::cuda
