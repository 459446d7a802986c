// scale_channels in f32, vectorised along the channels of a weight, or along the weights where each has one.
#include "runtime/backends/cpu/kernels/recurrent_kernels.h"
#include "runtime/backends/cpu/kernels/row_kernel.h"
#include "runtime/backends/cpu/kernels/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/backends/cpu/kernels/scale_channels_simd.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "runtime/backends/cpu/kernels/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::cpu::HWY_NAMESPACE {

// One row of C * repeats elements.
void scale_channels_row(const float* x, const float* w, float* y, int64_t C, int64_t repeats) {
  if (repeats == 1) {
    for_vectors(0, C, [&](auto at) HWY_ATTR { at.store(hn::Mul(at.load(x), at.load(w)), y); });
    return;
  }
  for (int64_t c = 0; c < C; ++c) {
    const VR weight = hn::Set(DR(), w[c]);
    for_vectors(c * repeats, (c + 1) * repeats,
                [&](auto at) HWY_ATTR { at.store(hn::Mul(at.load(x), weight), y); });
  }
}

}  // namespace tessera::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::cpu {

HWY_EXPORT(scale_channels_row);

// x [R, C * r], w [C] -> y [R, C * r]
Result<PreparedKernel> prepare_scale_channels_simd(const KernelSpec& spec) {
  TSR_RETURN_IF_ERROR(require_simd_f32(spec));
  const Rows rows = rows_of(spec.input_dims(0));
  const int64_t C = spec.input_dims(1)[0], repeats = C > 0 ? rows.cols / C : 0;
  return simd_prepared(spec, double(rows.count * rows.cols), make_kernel([=](const LaunchArgs& args) {
                         args.pool.parallel_ranges(rows.count, row_grain(rows.cols), [&](int64_t begin, int64_t end) {
                           for (int64_t r = begin; r < end; ++r)
                             HWY_DYNAMIC_DISPATCH(scale_channels_row)
                             (args.in<float>(0) + r * rows.cols, args.in<float>(1), args.out<float>(0) + r * rows.cols, C,
                              repeats);
                         });
                       }));
}

}  // namespace tessera::cpu
#endif
