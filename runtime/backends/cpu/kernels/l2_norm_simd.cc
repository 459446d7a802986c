// l2_norm and its gradient in f32, vectorised; a row stays in L1 while it is read twice.
#include <cmath>

#include "runtime/backends/cpu/kernels/recurrent_kernels.h"
#include "runtime/backends/cpu/kernels/row_kernel.h"
#include "runtime/backends/cpu/kernels/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/backends/cpu/kernels/l2_norm_simd.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "runtime/backends/cpu/kernels/rows-inl.h"

#ifndef TSR_L2_NORM_SIMD_CC_ONCE_
#define TSR_L2_NORM_SIMD_CC_ONCE_
namespace tessera::cpu {
namespace {

// Rows of C elements; y is dx in the gradient.
struct L2Rows {
  int64_t C;
  const float *x, *dy;
  float* y;
  float eps, scale;
};

}  // namespace
}  // namespace tessera::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace tessera::cpu::HWY_NAMESPACE {

HWY_INLINE float inverse_length(const float* x, int64_t C, float eps) {
  VR squares = hn::Zero(DR());
  for_vectors(0, C, [&](auto at) HWY_ATTR {
    const VR value = at.load(x);
    squares = hn::MulAdd(value, value, squares);
  });
  return 1.0f / std::sqrt(sum_of(squares) + eps);
}

void l2_norm_rows(const L2Rows& n, int64_t begin, int64_t end) {
  for (int64_t r = begin; r < end; ++r) {
    const float* x = n.x + r * n.C;
    const VR factor = hn::Set(DR(), n.scale * inverse_length(x, n.C, n.eps));
    for_vectors(0, n.C, [&](auto at) HWY_ATTR { at.store(hn::Mul(at.load(x), factor), n.y + r * n.C); });
  }
}

void l2_norm_grad_rows(const L2Rows& n, int64_t begin, int64_t end) {
  const DR d;
  for (int64_t r = begin; r < end; ++r) {
    const float *x = n.x + r * n.C, *dy = n.dy + r * n.C;
    const float inverse = inverse_length(x, n.C, n.eps);
    VR sum = hn::Zero(d);
    for_vectors(0, n.C, [&](auto at) HWY_ATTR { sum = hn::MulAdd(at.load(dy), at.load(x), sum); });
    const VR projection = hn::Set(d, sum_of(sum) * inverse * inverse), factor = hn::Set(d, n.scale * inverse);
    for_vectors(0, n.C, [&](auto at) HWY_ATTR {
      at.store(hn::Mul(factor, hn::NegMulAdd(at.load(x), projection, at.load(dy))), n.y + r * n.C);
    });
  }
}

}  // namespace tessera::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::cpu {

HWY_EXPORT(l2_norm_rows);
HWY_EXPORT(l2_norm_grad_rows);

// x [R, C] -> y [R, C]
Result<PreparedKernel> prepare_l2_norm_simd(const KernelSpec& spec) {
  TSR_RETURN_IF_ERROR(require_simd_f32(spec));
  const Rows rows = rows_of(spec.input_dims(0));
  const auto eps = static_cast<float>(spec.f64("eps")), scale = static_cast<float>(spec.f64("scale"));
  return simd_prepared(spec, 3.0 * double(rows.count * rows.cols), make_kernel([=](const LaunchArgs& args) {
                         const L2Rows n = {rows.cols, args.in<float>(0), nullptr, args.out<float>(0), eps, scale};
                         args.pool.parallel_ranges(rows.count, row_grain(rows.cols), [&](int64_t begin, int64_t end) {
                           HWY_DYNAMIC_DISPATCH(l2_norm_rows)(n, begin, end);
                         });
                       }));
}

// dy, x [R, C] -> dx [R, C]
Result<PreparedKernel> prepare_l2_norm_grad_simd(const KernelSpec& spec) {
  TSR_RETURN_IF_ERROR(require_simd_f32(spec));
  const Rows rows = rows_of(spec.input_dims(0));
  const auto eps = static_cast<float>(spec.f64("eps")), scale = static_cast<float>(spec.f64("scale"));
  return simd_prepared(
      spec, 7.0 * double(rows.count * rows.cols), make_kernel([=](const LaunchArgs& args) {
        const L2Rows n = {rows.cols, args.in<float>(1), args.in<float>(0), args.out<float>(0), eps, scale};
        args.pool.parallel_ranges(rows.count, row_grain(rows.cols), [&](int64_t begin, int64_t end) {
          HWY_DYNAMIC_DISPATCH(l2_norm_grad_rows)(n, begin, end);
        });
      }));
}

}  // namespace tessera::cpu
#endif
