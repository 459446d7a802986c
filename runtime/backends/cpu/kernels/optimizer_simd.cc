// adamw_update, sgd_update, lion_update and sum_squares in f32, vectorised: one pass over memory each.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "runtime/backends/cpu/kernels/kernels.h"
#include "runtime/backends/cpu/kernels/optimizer_kernels.h"
#include "runtime/backends/cpu/kernels/simd_targets.h"
#include "runtime/backends/cpu/kernels/step_setting.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/backends/cpu/kernels/optimizer_simd.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#ifndef TSR_OPTIMIZER_SIMD_CC_ONCE_
#define TSR_OPTIMIZER_SIMD_CC_ONCE_
namespace tessera::cpu {
namespace {

constexpr int64_t kUpdateGrain = 16384;  // elements of a task

struct AdamwStep {
  float beta1, beta2;
  float fresh1, fresh2;      // 1 - beta, rounded once: computed in f32 it would be off by 1e-5
  float m_unbias, v_unbias;  // 1 / (1 - beta^step)
  float eps, weight_decay, lr, gscale;
};

struct SgdStep {
  float momentum, weight_decay, lr, gscale;
};

struct LionStep {
  float beta1, beta2;
  float fresh1, fresh2;  // 1 - beta, rounded once
  float weight_decay, lr, gscale;
};

}  // namespace
}  // namespace tessera::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace tessera::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
using DU = hn::CappedTag<float, 16>;
using VU = hn::Vec<DU>;
inline constexpr int kUpdateLanes = static_cast<int>(hn::MaxLanes(DU()));

// update(d, x, y) over vectors of IN inputs and OUT outputs; a buffer serves the last few elements.
template <int IN, int OUT, class Update>
HWY_INLINE void update_elements(const float* const* in, float* const* out, int64_t begin, int64_t end,
                                const Update& update) {
  const DU d;
  VU x[IN], y[OUT];
  int64_t i = begin;
  for (; i + kUpdateLanes <= end; i += kUpdateLanes) {
    for (int j = 0; j < IN; ++j) x[j] = hn::LoadU(d, in[j] + i);
    update(d, x, y);
    for (int j = 0; j < OUT; ++j) hn::StoreU(y[j], d, out[j] + i);
  }
  if (i == end) return;
  alignas(64) float part[kUpdateLanes] = {};
  for (int j = 0; j < IN; ++j) {
    std::copy(in[j] + i, in[j] + end, part);
    x[j] = hn::Load(d, part);
  }
  update(d, x, y);
  for (int j = 0; j < OUT; ++j) {
    hn::Store(y[j], d, part);
    std::copy(part, part + (end - i), out[j] + i);
  }
}

// p, g, m, v -> p, m, v
struct AdamwUpdate {
  AdamwStep s;
  HWY_INLINE void operator()(DU d, const VU* x, VU* y) const {
    const VU g = hn::Mul(x[1], hn::Set(d, s.gscale));
    const VU m = hn::MulAdd(hn::Set(d, s.beta1), x[2], hn::Mul(hn::Set(d, s.fresh1), g));
    const VU v = hn::MulAdd(hn::Set(d, s.beta2), x[3], hn::Mul(hn::Set(d, s.fresh2), hn::Mul(g, g)));
    const VU root = hn::Add(hn::Sqrt(hn::Mul(v, hn::Set(d, s.v_unbias))), hn::Set(d, s.eps));
    const VU direction =
        hn::MulAdd(hn::Set(d, s.weight_decay), x[0], hn::Div(hn::Mul(m, hn::Set(d, s.m_unbias)), root));
    y[0] = hn::NegMulAdd(hn::Set(d, s.lr), direction, x[0]);
    y[1] = m;
    y[2] = v;
  }
};

// p, g, buf -> p, buf
struct SgdUpdate {
  SgdStep s;
  HWY_INLINE void operator()(DU d, const VU* x, VU* y) const {
    const VU g = hn::MulAdd(x[1], hn::Set(d, s.gscale), hn::Mul(hn::Set(d, s.weight_decay), x[0]));
    y[1] = hn::MulAdd(hn::Set(d, s.momentum), x[2], g);
    y[0] = hn::NegMulAdd(hn::Set(d, s.lr), y[1], x[0]);
  }
};

// p, g, m -> p, m
struct LionUpdate {
  LionStep s;
  HWY_INLINE void operator()(DU d, const VU* x, VU* y) const {
    const VU g = hn::Mul(x[1], hn::Set(d, s.gscale)), zero = hn::Zero(d), one = hn::Set(d, 1.0f);
    const VU mixed = hn::MulAdd(hn::Set(d, s.beta1), x[2], hn::Mul(hn::Set(d, s.fresh1), g));
    const VU sign =
        hn::Sub(hn::IfThenElseZero(hn::Gt(mixed, zero), one), hn::IfThenElseZero(hn::Lt(mixed, zero), one));
    const VU direction = hn::MulAdd(hn::Set(d, s.weight_decay), x[0], sign);
    y[0] = hn::NegMulAdd(hn::Set(d, s.lr), direction, x[0]);
    y[1] = hn::MulAdd(hn::Set(d, s.beta2), x[2], hn::Mul(hn::Set(d, s.fresh2), g));
  }
};

void adamw_elements(const AdamwStep& step, const float* const* in, float* const* out, int64_t begin,
                    int64_t end) {
  update_elements<4, 3>(in, out, begin, end, AdamwUpdate{step});
}

void sgd_elements(const SgdStep& step, const float* const* in, float* const* out, int64_t begin,
                  int64_t end) {
  update_elements<3, 2>(in, out, begin, end, SgdUpdate{step});
}

void lion_elements(const LionStep& step, const float* const* in, float* const* out, int64_t begin,
                   int64_t end) {
  update_elements<3, 2>(in, out, begin, end, LionUpdate{step});
}

// Lanes sum at most 512 elements each in f32, then in double.
double sum_squares_elements(const float* x, int64_t count) {
  constexpr int64_t kBlock = 512 * kUpdateLanes;
  const DU d;
  double total = 0;
  int64_t i = 0;
  while (i + kUpdateLanes <= count) {
    const int64_t stop = std::min(count, i + kBlock);
    VU sum0 = hn::Zero(d), sum1 = hn::Zero(d);
    for (; i + 2 * kUpdateLanes <= stop; i += 2 * kUpdateLanes) {
      const VU a = hn::LoadU(d, x + i), b = hn::LoadU(d, x + i + kUpdateLanes);
      sum0 = hn::MulAdd(a, a, sum0);
      sum1 = hn::MulAdd(b, b, sum1);
    }
    for (; i + kUpdateLanes <= stop; i += kUpdateLanes) {
      const VU a = hn::LoadU(d, x + i);
      sum0 = hn::MulAdd(a, a, sum0);
    }
    alignas(64) float lanes[kUpdateLanes];
    hn::Store(hn::Add(sum0, sum1), d, lanes);
    for (const float lane : lanes) total += static_cast<double>(lane);
  }
  for (; i < count; ++i) total += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  return total;
}

}  // namespace tessera::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::cpu {

HWY_EXPORT(adamw_elements);
HWY_EXPORT(sgd_elements);
HWY_EXPORT(lion_elements);
HWY_EXPORT(sum_squares_elements);

namespace {

// Elements are the first `count` operands, and all results.
Status require_f32_elements(const KernelSpec& spec, int count) {
  TSR_RETURN_IF_ERROR(simd_supported());
  for (int i = 0; i < count + spec.output_count(); ++i) {
    const DType dtype = i < count ? spec.input_dtype(i) : spec.output_dtype(i - count);
    if (dtype != DType::kF32)
      return Status(StatusCode::kUnsupported, format("dtype {}: this kernel computes in f32", to_text(dtype)));
  }
  return {};
}

void keep(const float* from, float* to, int64_t begin, int64_t end) {
  if (from != to) std::memcpy(to + begin, from + begin, sizeof(float) * static_cast<size_t>(end - begin));
}

}  // namespace

// p, g, m, v, lr, step, (gscale, (settings)) -> p, m, v. 28 bytes an element: bound by memory from a few thousand
// elements on.
Result<PreparedKernel> prepare_adamw_update_simd(const KernelSpec& spec) {
  TSR_RETURN_IF_ERROR(require_f32_elements(spec, 4));
  const int64_t count = spec.output_elements(0);
  const auto settings = step_settings<4>(spec, 7, {"beta1", "beta2", "eps", "weight_decay"});
  const float lr_scale = static_cast<float>(spec.f64("lr_scale"));
  const bool clipped = spec.input_count() >= 7;
  return simd_prepared(
      spec, 17 * static_cast<double>(count), make_kernel([=](const LaunchArgs& args) {
        const double step = static_cast<double>(*args.in<float>(5));
        const double beta1 = settings[0].value(args), beta2 = settings[1].value(args);
        const AdamwStep s{.beta1 = static_cast<float>(beta1),
                          .beta2 = static_cast<float>(beta2),
                          .fresh1 = static_cast<float>(1 - beta1),
                          .fresh2 = static_cast<float>(1 - beta2),
                          .m_unbias = static_cast<float>(1 / (1 - std::pow(beta1, step))),
                          .v_unbias = static_cast<float>(1 / (1 - std::pow(beta2, step))),
                          .eps = static_cast<float>(settings[2].value(args)),
                          .weight_decay = static_cast<float>(settings[3].value(args)),
                          .lr = lr_scale * *args.in<float>(4),
                          .gscale = clipped ? *args.in<float>(6) : 1.0f};
        const float* in[] = {args.in<float>(0), args.in<float>(1), args.in<float>(2), args.in<float>(3)};
        float* out[] = {args.out<float>(0), args.out<float>(1), args.out<float>(2)};
        args.pool.parallel_ranges(count, kUpdateGrain, [&](int64_t begin, int64_t end) {
          if (s.gscale != 0) return HWY_DYNAMIC_DISPATCH(adamw_elements)(s, in, out, begin, end);
          keep(in[0], out[0], begin, end);
          keep(in[2], out[1], begin, end);
          keep(in[3], out[2], begin, end);
        });
      }));
}

// p, g, buf, lr, (gscale, (settings)) -> p, buf
Result<PreparedKernel> prepare_sgd_update_simd(const KernelSpec& spec) {
  TSR_RETURN_IF_ERROR(require_f32_elements(spec, 3));
  const int64_t count = spec.output_elements(0);
  const auto settings = step_settings<2>(spec, 5, {"momentum", "weight_decay"});
  const float lr_scale = static_cast<float>(spec.f64("lr_scale"));
  const bool clipped = spec.input_count() >= 5;
  return simd_prepared(
      spec, 6 * static_cast<double>(count), make_kernel([=](const LaunchArgs& args) {
        const SgdStep s{static_cast<float>(settings[0].value(args)),
                        static_cast<float>(settings[1].value(args)), lr_scale * *args.in<float>(3),
                        clipped ? *args.in<float>(4) : 1.0f};
        const float* in[] = {args.in<float>(0), args.in<float>(1), args.in<float>(2)};
        float* out[] = {args.out<float>(0), args.out<float>(1)};
        args.pool.parallel_ranges(count, kUpdateGrain, [&](int64_t begin, int64_t end) {
          if (s.gscale != 0) return HWY_DYNAMIC_DISPATCH(sgd_elements)(s, in, out, begin, end);
          keep(in[0], out[0], begin, end);
          keep(in[2], out[1], begin, end);
        });
      }));
}

// p, g, m, lr, (gscale, (settings)) -> p, m
Result<PreparedKernel> prepare_lion_update_simd(const KernelSpec& spec) {
  TSR_RETURN_IF_ERROR(require_f32_elements(spec, 3));
  const int64_t count = spec.output_elements(0);
  const auto settings = step_settings<3>(spec, 5, {"beta1", "beta2", "weight_decay"});
  const float lr_scale = static_cast<float>(spec.f64("lr_scale"));
  const bool clipped = spec.input_count() >= 5;
  return simd_prepared(spec, 11 * static_cast<double>(count), make_kernel([=](const LaunchArgs& args) {
                         const double beta1 = settings[0].value(args), beta2 = settings[1].value(args);
                         const LionStep s{.beta1 = static_cast<float>(beta1),
                                          .beta2 = static_cast<float>(beta2),
                                          .fresh1 = static_cast<float>(1 - beta1),
                                          .fresh2 = static_cast<float>(1 - beta2),
                                          .weight_decay = static_cast<float>(settings[2].value(args)),
                                          .lr = lr_scale * *args.in<float>(3),
                                          .gscale = clipped ? *args.in<float>(4) : 1.0f};
                         const float* in[] = {args.in<float>(0), args.in<float>(1), args.in<float>(2)};
                         float* out[] = {args.out<float>(0), args.out<float>(1)};
                         args.pool.parallel_ranges(count, kUpdateGrain, [&](int64_t begin, int64_t end) {
                           if (s.gscale != 0)
                             return HWY_DYNAMIC_DISPATCH(lion_elements)(s, in, out, begin, end);
                           keep(in[0], out[0], begin, end);
                           keep(in[2], out[1], begin, end);
                         });
                       }));
}

// Partial sums stand in the workspace, one a task, added in order: the same bits for any number of threads.
Result<PreparedKernel> prepare_sum_squares_simd(const KernelSpec& spec) {
  TSR_RETURN_IF_ERROR(require_simd_f32(spec));
  const int64_t count = spec.input_elements(0), tasks = (count + kUpdateGrain - 1) / kUpdateGrain;
  return simd_prepared(spec, 2 * static_cast<double>(count), make_kernel([=](const LaunchArgs& args) {
                         const float* x = args.in<float>(0);
                         double* partial = static_cast<double*>(args.workspace);
                         args.pool.parallel_ranges(count, kUpdateGrain, [&](int64_t begin, int64_t end) {
                           partial[begin / kUpdateGrain] =
                               HWY_DYNAMIC_DISPATCH(sum_squares_elements)(x + begin, end - begin);
                         });
                         double total = 0;
                         for (int64_t task = 0; task < tasks; ++task) total += partial[task];
                         *args.out<float>(0) = static_cast<float>(total);
                       }),
                       tasks * static_cast<int64_t>(sizeof(double)));
}

}  // namespace tessera::cpu
#endif
