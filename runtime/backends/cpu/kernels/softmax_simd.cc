// softmax, the row statistics of the cross entropy and their gradients in f32, vectorised.
#include <algorithm>
#include <cmath>
#include <limits>

#include "runtime/backends/cpu/factor_index.h"
#include "runtime/backends/cpu/kernels/kernels.h"
#include "runtime/backends/cpu/kernels/row_kernel.h"
#include "runtime/backends/cpu/kernels/simd_targets.h"
#include "runtime/backends/cpu/kernels/softmax_rows.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/backends/cpu/kernels/softmax_simd.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "runtime/backends/cpu/kernels/rows-inl.h"
#include "runtime/backends/cpu/kernels/vector_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::cpu::HWY_NAMESPACE {

// The largest element, -inf for none; NaN where there is a NaN, so that a broken loss shows.
float max_of_row(const float* x, int64_t count) {
  const DR d;
  const VR none = hn::Set(d, -std::numeric_limits<float>::infinity());
  VR best = none, broken = hn::Zero(d);
  for_vectors(0, count, [&](auto at) HWY_ATTR {
    const VR value = at.keep_or(at.load(x), none);
    best = hn::Max(value, best);
    broken = hn::IfThenElse(hn::Eq(value, value), broken, value);
  });
  const float nan = sum_of(broken);
  return std::isnan(nan) ? nan : hn::GetLane(hn::MaxOfLanes(d, best));
}

// exp(x - m), 0 for x = -inf also where the whole row is -inf.
HWY_INLINE VR exp_above(VR x, VR m) {
  const DR d;
  const auto absent = hn::Eq(x, hn::Set(d, -std::numeric_limits<float>::infinity()));
  return hn::IfThenZeroElse(absent, fast_exp(d, hn::Sub(x, m)));
}

// Sum of exp(x - m): 4096 elements at most in f32, then in double.
float sum_exp_of_row(const float* x, int64_t count, float m) {
  constexpr int64_t kBlock = 4096;
  const DR d;
  const VR top = hn::Set(d, m);
  double total = 0;
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    VR sum = hn::Zero(d);
    for_vectors(begin, std::min(count, begin + kBlock),
                [&](auto at) HWY_ATTR { sum = hn::Add(sum, at.keep(exp_above(at.load(x), top))); });
    total += static_cast<double>(sum_of(sum));
  }
  return static_cast<float>(total);
}

void max_rows(const float* x, float* m, int64_t cols, int64_t begin, int64_t end) {
  for (int64_t r = begin; r < end; ++r) m[r] = max_of_row(x + r * cols, cols);
}

void sum_exp_rows(const float* x, const float* m, float* s, int64_t cols, int64_t begin, int64_t end) {
  for (int64_t r = begin; r < end; ++r) s[r] = sum_exp_of_row(x + r * cols, cols, m[r]);
}

// dx = (exp(x - m) / s - [column = label]) dloss; all zero when the row does not count.
void cross_entropy_grad_row(const float* x, float* dx, int64_t cols, float m, float s, float dloss,
                            int64_t label, bool counts) {
  const DR d;
  if (!counts) {
    std::fill_n(dx, cols, 0.0f);
    return;
  }
  const float of_label =
      label >= 0 && label < cols ? x[label] : 0.0f;  // before dx, which may be x, is written
  const VR top = hn::Set(d, m), factor = hn::Set(d, dloss / s);
  for_vectors(0, cols, [&](auto at) HWY_ATTR { at.store(hn::Mul(exp_above(at.load(x), top), factor), dx); });
  if (label < 0 || label >= cols) return;
  const float p = of_label == -std::numeric_limits<float>::infinity() ? 0.0f : std::exp(of_label - m) / s;
  dx[label] = (p - 1) * dloss;
}

void softmax_rows(const float* x, float* y, int64_t cols, int64_t begin, int64_t end) {
  const DR d;
  for (int64_t at_row = begin * cols; at_row < end * cols; at_row += cols) {
    const float* from = x + at_row;
    float* to = y + at_row;
    const VR top = hn::Set(d, max_of_row(from, cols));
    VR sum = hn::Zero(d);
    for_vectors(0, cols, [&](auto at) HWY_ATTR {
      const VR e = at.keep(fast_exp(d, hn::Sub(at.load(from), top)));
      sum = hn::Add(sum, e);
      at.store(e, to);
    });
    const VR inverse = hn::Set(d, 1.0f / sum_of(sum));
    for_vectors(0, cols, [&](auto at) HWY_ATTR { at.store(hn::Mul(at.load(to), inverse), to); });
  }
}

// dx = y (dy - sum(dy y))
void softmax_grad_rows(const float* y, const float* dy, float* dx, int64_t cols, int64_t begin, int64_t end) {
  const DR d;
  for (int64_t at_row = begin * cols; at_row < end * cols; at_row += cols) {
    VR sum = hn::Zero(d);
    for_vectors(0, cols,
                [&](auto at) HWY_ATTR { sum = hn::MulAdd(at.load(y + at_row), at.load(dy + at_row), sum); });
    const VR mean = hn::Set(d, sum_of(sum));
    for_vectors(0, cols, [&](auto at) HWY_ATTR {
      at.store(hn::Mul(at.load(y + at_row), hn::Sub(at.load(dy + at_row), mean)), dx + at_row);
    });
  }
}

}  // namespace tessera::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::cpu {

HWY_EXPORT(max_rows);
HWY_EXPORT(sum_exp_rows);
HWY_EXPORT(cross_entropy_grad_row);
HWY_EXPORT(softmax_rows);
HWY_EXPORT(softmax_grad_rows);

namespace {

double elements(Rows rows) { return static_cast<double>(rows.count) * static_cast<double>(rows.cols); }

}  // namespace

float softmax_row_max(const float* x, int64_t cols) {
  float m = 0;
  HWY_DYNAMIC_DISPATCH(max_rows)(x, &m, cols, 0, 1);
  return m;
}
float softmax_row_sum(const float* x, int64_t cols, float m) {
  float s = 0;
  HWY_DYNAMIC_DISPATCH(sum_exp_rows)(x, &m, &s, cols, 0, 1);
  return s;
}
void softmax_row_gradient(float* x, int64_t cols, float m, float s, float dloss, int64_t label, bool counts) {
  HWY_DYNAMIC_DISPATCH(cross_entropy_grad_row)(x, x, cols, m, s, dloss, label, counts);
}

// x [R, V] -> m [R]
Result<PreparedKernel> prepare_row_max_simd(const KernelSpec& spec) {
  TSR_RETURN_IF_ERROR(require_simd_f32(spec));
  const Rows rows = rows_of(spec.input_dims(0));
  return simd_prepared(spec, 2 * elements(rows), make_kernel([=](const LaunchArgs& args) {
                         args.pool.parallel_ranges(
                             rows.count, row_grain(rows.cols), [&](int64_t begin, int64_t end) {
                               HWY_DYNAMIC_DISPATCH(max_rows)
                               (args.in<float>(0), args.out<float>(0), rows.cols, begin, end);
                             });
                       }));
}

// x [R, V], m [R] -> s [R]
Result<PreparedKernel> prepare_row_sum_exp_simd(const KernelSpec& spec) {
  TSR_RETURN_IF_ERROR(require_simd_f32(spec));
  const Rows rows = rows_of(spec.input_dims(0));
  return simd_prepared(
      spec, 20 * elements(rows), make_kernel([=](const LaunchArgs& args) {
        args.pool.parallel_ranges(rows.count, row_grain(rows.cols), [&](int64_t begin, int64_t end) {
          HWY_DYNAMIC_DISPATCH(sum_exp_rows)
          (args.in<float>(0), args.in<float>(1), args.out<float>(0), rows.cols, begin, end);
        });
      }));
}

// x [R, V], labels, m, s, dloss [R] -> dx [R, V], which may be x itself
Result<PreparedKernel> prepare_cross_entropy_grad_simd(const KernelSpec& spec) {
  TSR_RETURN_IF_ERROR(require_simd_f32(spec));
  const Rows rows = rows_of(spec.input_dims(0));
  const FactorIndex v(spec.factor('v'));
  return simd_prepared(spec, 20 * elements(rows), make_kernel([=](const LaunchArgs& args) {
                         const float *x = args.in<float>(0), *m = args.in<float>(2), *s = args.in<float>(3);
                         const float* dloss = args.in<float>(4);
                         const int32_t* labels = args.in<int32_t>(1);
                         float* dx = args.out<float>(0);
                         args.pool.parallel_ranges(rows.count, row_grain(rows.cols),
                                                   [&](int64_t begin, int64_t end) {
                                                     for (int64_t r = begin; r < end; ++r)
                                                       HWY_DYNAMIC_DISPATCH(cross_entropy_grad_row)
                                                     (x + r * rows.cols, dx + r * rows.cols, rows.cols, m[r],
                                                      s[r], dloss[r], v.to_local(labels[r]), labels[r] >= 0);
                                                   });
                       }));
}

// x [R, C] -> y [R, C]
Result<PreparedKernel> prepare_softmax_simd(const KernelSpec& spec) {
  TSR_RETURN_IF_ERROR(require_simd_f32(spec));
  const Rows rows = rows_of(spec.input_dims(0));
  return simd_prepared(spec, 20 * elements(rows), make_kernel([=](const LaunchArgs& args) {
                         args.pool.parallel_ranges(
                             rows.count, row_grain(rows.cols), [&](int64_t begin, int64_t end) {
                               HWY_DYNAMIC_DISPATCH(softmax_rows)
                               (args.in<float>(0), args.out<float>(0), rows.cols, begin, end);
                             });
                       }));
}

// y, dy [R, C] -> dx [R, C]
Result<PreparedKernel> prepare_softmax_grad_simd(const KernelSpec& spec) {
  TSR_RETURN_IF_ERROR(require_simd_f32(spec));
  const Rows rows = rows_of(spec.input_dims(0));
  return simd_prepared(
      spec, 4 * elements(rows), make_kernel([=](const LaunchArgs& args) {
        args.pool.parallel_ranges(rows.count, row_grain(rows.cols), [&](int64_t begin, int64_t end) {
          HWY_DYNAMIC_DISPATCH(softmax_grad_rows)
          (args.in<float>(0), args.in<float>(1), args.out<float>(0), rows.cols, begin, end);
        });
      }));
}

}  // namespace tessera::cpu
#endif
