#include "runtime/backends/cuda/kernels/columns.cuh"
#include "runtime/backends/cuda/kernels/decode_step.h"
#include "runtime/backends/cuda/kernels/kernels.h"
#include "runtime/backends/cuda/kernels/norm_grad.cuh"
#include "runtime/backends/cuda/kernels/norm_rows.cuh"
#include "runtime/backends/cuda/kernels/rows.cuh"

namespace tessera::cuda {

namespace {

template <class T, int kVec>
struct GradInput {
  using W = Wide<T>;
  const T *dy, *x, *w, *addend;  // addend null for none
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
      if (addend != nullptr) {
        W other[kVec];
        load_pack(addend + at + c, other);
        for (int i = 0; i < kVec; ++i) d[i] += other[i];
      }
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
    Prepared prepared =
        by_packed_rows<T>(spec, rows.count, rows.cols, [=](const LaunchArgs& args, auto packed) {
          return RmsNormRow<T, packed.value>{args.in<T>(0), args.in<T>(1), args.out<T>(0), args.out<W>(1),
                                             rows.cols,     W(eps),        W(inverse)};
        });
    return as_decode_step(std::move(prepared),
                          {spec.input_dtype(0), NormStep{false, rows.count, rows.cols, eps}});
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
      return GradInput<T, packed.value>{args.in<T>(0), args.in<T>(1),  args.in<T>(2), nullptr,
                                        args.in<W>(3), args.out<T>(0), rows.cols,     W(inverse)};
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

// dy, x [R, C], w [C], rstd [R], addend [R, C] -> dx [R, C], dw [C]
Result<Prepared> prepare_rms_norm_grad(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<Prepared> {
    using T = decltype(zero);
    using W = Wide<T>;
    const Rows rows = rows_of(spec.input_dims(0));
    const double inverse = 1 / double(rows.cols > 1 ? rows.cols : 1);
    const bool adds = spec.input_count() == 5;
    const auto addend = [adds](const LaunchArgs& args) { return adds ? args.in<T>(4) : nullptr; };
    const ColumnChunks chunks(rows.count, rows.cols);
    auto apart = make_kernel([=](const LaunchArgs& args) {
      // First what reads dy alone: dx may take its place.
      const WeightTerm<T> term{args.in<T>(0), args.in<T>(1), args.in<W>(3), rows.cols};
      launch_columns<T, 1>(args, chunks, term, {{args.out<T>(1), nullptr}});
      launch_rows(args.stream, rows.count, rows.cols,
                  GradInput<T, 1>{args.in<T>(0), args.in<T>(1), args.in<T>(2), addend(args), args.in<W>(3),
                                  args.out<T>(0), rows.cols, W(inverse)});
    });
    int64_t workspace_bytes = chunks.workspace_bytes<W>(1);
    const NormGradShape<T> shape(rows.count, rows.cols);
    if (!shape.fits()) return memory_bound(spec, std::move(apart), workspace_bytes);
    if (const int64_t bytes = shape.template workspace_bytes<1>(); bytes > workspace_bytes)
      workspace_bytes = bytes;
    auto together = make_kernel([=](const LaunchArgs& args) {
      launch_norm_grad<T, false>(args, shape,
                                 {args.in<T>(0), args.in<T>(1), args.in<T>(2), addend(args), nullptr,
                                  args.in<W>(3), args.out<T>(0), nullptr, rows.count, rows.cols, W(inverse)},
                                 {{args.out<T>(1), nullptr}});
    });
    return memory_bound(spec, where_aligned(spec, std::move(together), std::move(apart)), workspace_bytes);
  });
}

}  // namespace tessera::cuda
