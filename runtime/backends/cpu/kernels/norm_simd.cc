// layer_norm and rms_norm and their gradients in f32, vectorised; a row stays in L1 while it is read twice.
#include <algorithm>
#include <cmath>

#include "runtime/backends/cpu/kernels/kernels.h"
#include "runtime/backends/cpu/kernels/row_kernel.h"
#include "runtime/backends/cpu/kernels/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/backends/cpu/kernels/norm_simd.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "runtime/backends/cpu/kernels/rows-inl.h"

#ifndef TSR_NORM_SIMD_CC_ONCE_
#define TSR_NORM_SIMD_CC_ONCE_
namespace tessera::cpu {
namespace {

constexpr int64_t kColumns = 128;  // of a task of the weight gradients
constexpr int64_t kRowBlock =
    64;  // rows summed in registers before they join the total: two levels of rounding

// Rows [begin, end) of C elements; b, mean and db are null for rms_norm.
struct NormRows {
  int64_t C;
  const float *x, *dy, *w, *b, *mean, *rstd;
  float *y, *out_mean, *out_rstd;  // y is dx in the gradients
  float eps;
};

}  // namespace
}  // namespace tessera::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace tessera::cpu::HWY_NAMESPACE {

void layer_norm_rows(const NormRows& n, int64_t begin, int64_t end) {
  const DR d;
  const float inverse = 1.0f / static_cast<float>(std::max<int64_t>(n.C, 1));
  for (int64_t r = begin; r < end; ++r) {
    const float* x = n.x + r * n.C;
    float* y = n.y + r * n.C;
    VR sum = hn::Zero(d);
    for_vectors(0, n.C, [&](auto at) HWY_ATTR { sum = hn::Add(sum, at.load(x)); });
    const float mean = sum_of(sum) * inverse;
    const VR center = hn::Set(d, mean);
    VR squares = hn::Zero(d);
    for_vectors(0, n.C, [&](auto at) HWY_ATTR {
      const VR delta = at.keep(hn::Sub(at.load(x), center));
      squares = hn::MulAdd(delta, delta, squares);
    });
    const float rstd = 1.0f / std::sqrt(sum_of(squares) * inverse + n.eps);
    const VR scale = hn::Set(d, rstd);
    for_vectors(0, n.C, [&](auto at) HWY_ATTR {
      const VR xhat = hn::Mul(hn::Sub(at.load(x), center), scale);
      at.store(hn::MulAdd(xhat, at.load(n.w), at.load(n.b)), y);
    });
    n.out_mean[r] = mean;
    n.out_rstd[r] = rstd;
  }
}

// dx = rstd (g - mean(g) - xhat mean(g xhat)), g = dy w
void layer_norm_grad_rows(const NormRows& n, int64_t begin, int64_t end) {
  const DR d;
  const float inverse = 1.0f / static_cast<float>(std::max<int64_t>(n.C, 1));
  for (int64_t r = begin; r < end; ++r) {
    const float *x = n.x + r * n.C, *dy = n.dy + r * n.C;
    float* dx = n.y + r * n.C;
    const VR center = hn::Set(d, n.mean[r]), scale = hn::Set(d, n.rstd[r]);
    VR g_sum = hn::Zero(d), gx_sum = hn::Zero(d);
    for_vectors(0, n.C, [&](auto at) HWY_ATTR {
      const VR g = hn::Mul(at.load(dy), at.load(n.w));  // zero where absent
      g_sum = hn::Add(g_sum, g);
      gx_sum = hn::MulAdd(g, hn::Mul(hn::Sub(at.load(x), center), scale), gx_sum);
    });
    const VR g_mean = hn::Set(d, sum_of(g_sum) * inverse), gx_mean = hn::Set(d, sum_of(gx_sum) * inverse);
    for_vectors(0, n.C, [&](auto at) HWY_ATTR {
      const VR g = hn::Sub(hn::Mul(at.load(dy), at.load(n.w)), g_mean);
      const VR xhat = hn::Mul(hn::Sub(at.load(x), center), scale);
      at.store(hn::Mul(scale, hn::NegMulAdd(xhat, gx_mean, g)), dx);
    });
  }
}

void rms_norm_rows(const NormRows& n, int64_t begin, int64_t end) {
  const DR d;
  for (int64_t r = begin; r < end; ++r) {
    const float* x = n.x + r * n.C;
    float* y = n.y + r * n.C;
    VR squares = hn::Zero(d);
    for_vectors(0, n.C, [&](auto at) HWY_ATTR {
      const VR value = at.load(x);
      squares = hn::MulAdd(value, value, squares);
    });
    const float rstd =
        1.0f / std::sqrt(sum_of(squares) / static_cast<float>(std::max<int64_t>(n.C, 1)) + n.eps);
    const VR scale = hn::Set(d, rstd);
    for_vectors(0, n.C,
                [&](auto at) HWY_ATTR { at.store(hn::Mul(hn::Mul(at.load(x), scale), at.load(n.w)), y); });
    n.out_rstd[r] = rstd;
  }
}

// dx = rstd (g - xhat mean(g xhat)), g = dy w, xhat = x rstd
void rms_norm_grad_rows(const NormRows& n, int64_t begin, int64_t end) {
  const DR d;
  for (int64_t r = begin; r < end; ++r) {
    const float *x = n.x + r * n.C, *dy = n.dy + r * n.C;
    float* dx = n.y + r * n.C;
    const VR scale = hn::Set(d, n.rstd[r]);
    VR gx_sum = hn::Zero(d);
    for_vectors(0, n.C, [&](auto at) HWY_ATTR {
      gx_sum = hn::MulAdd(hn::Mul(at.load(dy), at.load(n.w)), hn::Mul(at.load(x), scale), gx_sum);
    });
    const VR gx_mean = hn::Set(d, sum_of(gx_sum) / static_cast<float>(std::max<int64_t>(n.C, 1)));
    for_vectors(0, n.C, [&](auto at) HWY_ATTR {
      const VR g = hn::Mul(at.load(dy), at.load(n.w));
      at.store(hn::Mul(scale, hn::NegMulAdd(hn::Mul(at.load(x), scale), gx_mean, g)), dx);
    });
  }
}

// Columns [begin, end): dw = sum over rows of dy xhat, db = sum over rows of dy (not for rms_norm).
void norm_grad_columns(const NormRows& n, int64_t rows, int64_t begin, int64_t end, float* dw, float* db) {
  const DR d;
  for_vectors(begin, end, [&](auto at) HWY_ATTR {
    VR weight = hn::Zero(d), bias = hn::Zero(d);
    for (int64_t block = 0; block < rows; block += kRowBlock) {
      VR block_weight = hn::Zero(d), block_bias = hn::Zero(d);
      for (int64_t r = block; r < std::min(rows, block + kRowBlock); ++r) {
        const VR dy = at.load(n.dy + r * n.C);
        VR x = at.load(n.x + r * n.C);
        if (n.mean != nullptr) x = hn::Sub(x, hn::Set(d, n.mean[r]));
        block_weight = hn::MulAdd(dy, hn::Mul(x, hn::Set(d, n.rstd[r])), block_weight);
        block_bias = hn::Add(block_bias, dy);
      }
      weight = hn::Add(weight, block_weight);
      bias = hn::Add(bias, block_bias);
    }
    at.store(weight, dw);
    if (db != nullptr) at.store(bias, db);
  });
}

}  // namespace tessera::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::cpu {

HWY_EXPORT(layer_norm_rows);
HWY_EXPORT(layer_norm_grad_rows);
HWY_EXPORT(rms_norm_rows);
HWY_EXPORT(rms_norm_grad_rows);
HWY_EXPORT(norm_grad_columns);

namespace {

double elements(Rows rows) { return static_cast<double>(rows.count) * static_cast<double>(rows.cols); }

}  // namespace

// x [R, C], w, b [C] -> y [R, C], mean [R], rstd [R]
Result<PreparedKernel> prepare_layer_norm_simd(const KernelSpec& spec) {
  TSR_RETURN_IF_ERROR(require_simd_f32(spec));
  const Rows rows = rows_of(spec.input_dims(0));
  const float eps = static_cast<float>(spec.f64("eps"));
  return simd_prepared(spec, 8 * elements(rows), make_kernel([=](const LaunchArgs& args) {
                         const NormRows n{.C = rows.cols,
                                          .x = args.in<float>(0),
                                          .dy = nullptr,
                                          .w = args.in<float>(1),
                                          .b = args.in<float>(2),
                                          .mean = nullptr,
                                          .rstd = nullptr,
                                          .y = args.out<float>(0),
                                          .out_mean = args.out<float>(1),
                                          .out_rstd = args.out<float>(2),
                                          .eps = eps};
                         args.pool.parallel_ranges(rows.count, row_grain(rows.cols),
                                                   [&](int64_t begin, int64_t end) {
                                                     HWY_DYNAMIC_DISPATCH(layer_norm_rows)(n, begin, end);
                                                   });
                       }));
}

// dy, x [R, C], w [C], mean, rstd [R] -> dx [R, C]
Result<PreparedKernel> prepare_layer_norm_grad_input_simd(const KernelSpec& spec) {
  TSR_RETURN_IF_ERROR(require_simd_f32(spec));
  const Rows rows = rows_of(spec.input_dims(0));
  return simd_prepared(spec, 11 * elements(rows), make_kernel([=](const LaunchArgs& args) {
                         const NormRows n{.C = rows.cols,
                                          .x = args.in<float>(1),
                                          .dy = args.in<float>(0),
                                          .w = args.in<float>(2),
                                          .b = nullptr,
                                          .mean = args.in<float>(3),
                                          .rstd = args.in<float>(4),
                                          .y = args.out<float>(0),
                                          .out_mean = nullptr,
                                          .out_rstd = nullptr,
                                          .eps = 0};
                         args.pool.parallel_ranges(
                             rows.count, row_grain(rows.cols), [&](int64_t begin, int64_t end) {
                               HWY_DYNAMIC_DISPATCH(layer_norm_grad_rows)(n, begin, end);
                             });
                       }));
}

// dy, x [R, C], mean, rstd [R] -> dw, db [C]
Result<PreparedKernel> prepare_layer_norm_grad_weight_simd(const KernelSpec& spec) {
  TSR_RETURN_IF_ERROR(require_simd_f32(spec));
  const Rows rows = rows_of(spec.input_dims(0));
  return simd_prepared(spec, 5 * elements(rows), make_kernel([=](const LaunchArgs& args) {
                         const NormRows n{.C = rows.cols,
                                          .x = args.in<float>(1),
                                          .dy = args.in<float>(0),
                                          .w = nullptr,
                                          .b = nullptr,
                                          .mean = args.in<float>(2),
                                          .rstd = args.in<float>(3),
                                          .y = nullptr,
                                          .out_mean = nullptr,
                                          .out_rstd = nullptr,
                                          .eps = 0};
                         args.pool.parallel_ranges(rows.cols, kColumns, [&](int64_t begin, int64_t end) {
                           HWY_DYNAMIC_DISPATCH(norm_grad_columns)
                           (n, rows.count, begin, end, args.out<float>(0), args.out<float>(1));
                         });
                       }));
}

// x [R, C], w [C] -> y [R, C], rstd [R]
Result<PreparedKernel> prepare_rms_norm_simd(const KernelSpec& spec) {
  TSR_RETURN_IF_ERROR(require_simd_f32(spec));
  const Rows rows = rows_of(spec.input_dims(0));
  const float eps = static_cast<float>(spec.f64("eps"));
  return simd_prepared(spec, 4 * elements(rows), make_kernel([=](const LaunchArgs& args) {
                         const NormRows n{.C = rows.cols,
                                          .x = args.in<float>(0),
                                          .dy = nullptr,
                                          .w = args.in<float>(1),
                                          .b = nullptr,
                                          .mean = nullptr,
                                          .rstd = nullptr,
                                          .y = args.out<float>(0),
                                          .out_mean = nullptr,
                                          .out_rstd = args.out<float>(1),
                                          .eps = eps};
                         args.pool.parallel_ranges(rows.count, row_grain(rows.cols),
                                                   [&](int64_t begin, int64_t end) {
                                                     HWY_DYNAMIC_DISPATCH(rms_norm_rows)(n, begin, end);
                                                   });
                       }));
}

// dy, x [R, C], w [C], rstd [R] -> dx [R, C]
Result<PreparedKernel> prepare_rms_norm_grad_input_simd(const KernelSpec& spec) {
  TSR_RETURN_IF_ERROR(require_simd_f32(spec));
  const Rows rows = rows_of(spec.input_dims(0));
  return simd_prepared(spec, 9 * elements(rows), make_kernel([=](const LaunchArgs& args) {
                         const NormRows n{.C = rows.cols,
                                          .x = args.in<float>(1),
                                          .dy = args.in<float>(0),
                                          .w = args.in<float>(2),
                                          .b = nullptr,
                                          .mean = nullptr,
                                          .rstd = args.in<float>(3),
                                          .y = args.out<float>(0),
                                          .out_mean = nullptr,
                                          .out_rstd = nullptr,
                                          .eps = 0};
                         args.pool.parallel_ranges(rows.count, row_grain(rows.cols),
                                                   [&](int64_t begin, int64_t end) {
                                                     HWY_DYNAMIC_DISPATCH(rms_norm_grad_rows)(n, begin, end);
                                                   });
                       }));
}

// dy, x [R, C], rstd [R] -> dw [C]
Result<PreparedKernel> prepare_rms_norm_grad_weight_simd(const KernelSpec& spec) {
  TSR_RETURN_IF_ERROR(require_simd_f32(spec));
  const Rows rows = rows_of(spec.input_dims(0));
  return simd_prepared(spec, 3 * elements(rows), make_kernel([=](const LaunchArgs& args) {
                         const NormRows n{.C = rows.cols,
                                          .x = args.in<float>(1),
                                          .dy = args.in<float>(0),
                                          .w = nullptr,
                                          .b = nullptr,
                                          .mean = nullptr,
                                          .rstd = args.in<float>(2),
                                          .y = nullptr,
                                          .out_mean = nullptr,
                                          .out_rstd = nullptr,
                                          .eps = 0};
                         args.pool.parallel_ranges(rows.cols, kColumns, [&](int64_t begin, int64_t end) {
                           HWY_DYNAMIC_DISPATCH(norm_grad_columns)
                           (n, rows.count, begin, end, args.out<float>(0), nullptr);
                         });
                       }));
}

}  // namespace tessera::cpu
#endif
