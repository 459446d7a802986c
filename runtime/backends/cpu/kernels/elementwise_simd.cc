// Element-wise ops in f32, vectorised. An element is read before it is written, so kernels work in place too.
#include <algorithm>
#include <array>

#include "runtime/backends/cpu/kernels/activation_math.h"
#include "runtime/backends/cpu/kernels/kernels.h"
#include "runtime/backends/cpu/kernels/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/backends/cpu/kernels/elementwise_simd.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "runtime/backends/cpu/kernels/vector_math-inl.h"

#ifndef TSR_ELEMENTWISE_SIMD_CC_ONCE_
#define TSR_ELEMENTWISE_SIMD_CC_ONCE_
namespace tessera::cpu {
namespace {

constexpr int64_t kMapGrain = 16384;  // elements of a task

// Maps elements [begin, end). scale and scale_by multiply with `factor`, quick_gelu the argument of its sigmoid.
using MapFn = void (*)(const float* const* in, float* const* out, float factor, int64_t begin, int64_t end);

// Index of each function in the table at the end of this file's vector part.
enum class Map : int {
  kAdd,
  kSub,
  kMul,
  kDiv,
  kScale,
  kNeg,
  kSquare,
  kSqrt,
  kExp,
  kRelu,
  kReluGrad,
  kGeluTanh,
  kGeluTanhGrad,
  kGeluErf,
  kGeluErfGrad,
  kSilu,
  kSiluGrad,
  kQuickGelu,
  kQuickGeluGrad,
  kTanh,
  kTanhGrad,
  kSigmoid,
  kSigmoidGrad,
  kSwiglu,
  kSwigluGrad,
  kCount
};

}  // namespace
}  // namespace tessera::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace tessera::cpu::HWY_NAMESPACE {

using DM = hn::CappedTag<float, 16>;
using VM = hn::Vec<DM>;
inline constexpr int kMapLanes = static_cast<int>(hn::MaxLanes(DM()));

// One struct an op: its number of operands and results, and apply(d, x, y, factor) on one vector of each.
struct Add {
  static constexpr int kIn = 2, kOut = 1;
  static HWY_INLINE void apply(DM, const VM* x, VM* y, VM) { y[0] = hn::Add(x[0], x[1]); }
};
struct Sub {
  static constexpr int kIn = 2, kOut = 1;
  static HWY_INLINE void apply(DM, const VM* x, VM* y, VM) { y[0] = hn::Sub(x[0], x[1]); }
};
struct Mul {
  static constexpr int kIn = 2, kOut = 1;
  static HWY_INLINE void apply(DM, const VM* x, VM* y, VM) { y[0] = hn::Mul(x[0], x[1]); }
};
struct Div {
  static constexpr int kIn = 2, kOut = 1;
  static HWY_INLINE void apply(DM, const VM* x, VM* y, VM) { y[0] = hn::Div(x[0], x[1]); }
};
struct Scale {
  static constexpr int kIn = 1, kOut = 1;
  static HWY_INLINE void apply(DM, const VM* x, VM* y, VM factor) { y[0] = hn::Mul(x[0], factor); }
};
struct Neg {
  static constexpr int kIn = 1, kOut = 1;
  static HWY_INLINE void apply(DM, const VM* x, VM* y, VM) { y[0] = hn::Neg(x[0]); }
};
struct Square {
  static constexpr int kIn = 1, kOut = 1;
  static HWY_INLINE void apply(DM, const VM* x, VM* y, VM) { y[0] = hn::Mul(x[0], x[0]); }
};
struct Sqrt {
  static constexpr int kIn = 1, kOut = 1;
  static HWY_INLINE void apply(DM, const VM* x, VM* y, VM) { y[0] = hn::Sqrt(x[0]); }
};
struct Exp {
  static constexpr int kIn = 1, kOut = 1;
  static HWY_INLINE void apply(DM d, const VM* x, VM* y, VM) { y[0] = fast_exp(d, x[0]); }
};
struct Relu {
  static constexpr int kIn = 1, kOut = 1;
  static HWY_INLINE void apply(DM d, const VM* x, VM* y, VM) { y[0] = hn::Max(x[0], hn::Zero(d)); }
};
struct ReluGrad {
  static constexpr int kIn = 2, kOut = 1;
  static HWY_INLINE void apply(DM d, const VM* x, VM* y, VM) {
    y[0] = hn::IfThenElseZero(hn::Gt(x[0], hn::Zero(d)), x[1]);
  }
};
struct GeluTanh {
  static constexpr int kIn = 1, kOut = 1;
  static HWY_INLINE void apply(DM d, const VM* x, VM* y, VM) { y[0] = gelu_tanh(d, x[0]); }
};
// s + 2 x s (1 - s) u', s = sigmoid(2u): the derivative of x s.
struct GeluTanhGrad {
  static constexpr int kIn = 2, kOut = 1;
  static HWY_INLINE void apply(DM d, const VM* x, VM* y, VM) {
    const VM one = hn::Set(d, 1.0f), squared = hn::Mul(x[0], x[0]);
    const VM u2 = hn::Mul(hn::Mul(x[0], hn::Set(d, 1.5957691216057308f)),
                          hn::MulAdd(squared, hn::Set(d, 0.044715f), one));
    const VM s = fast_sigmoid(d, u2);
    const VM slope =
        hn::Mul(hn::Set(d, 1.5957691216057308f), hn::MulAdd(squared, hn::Set(d, 0.134145f), one));
    const VM bump = hn::Mul(hn::Mul(x[0], slope), hn::Mul(s, hn::Sub(one, s)));
    // The factor of s (1 - s) may be infinite where s (1 - s) is 0.
    const VM tail = hn::IfThenElseZero(hn::Lt(hn::Abs(x[0]), hn::Set(d, 30.0f)), bump);
    y[0] = hn::Mul(x[1], hn::Add(s, tail));
  }
};
struct GeluErf {
  static constexpr int kIn = 1, kOut = 1;
  static HWY_INLINE void apply(DM d, const VM* x, VM* y, VM) { y[0] = gelu_erf(d, x[0]); }
};
struct GeluErfGrad {
  static constexpr int kIn = 2, kOut = 1;
  static HWY_INLINE void apply(DM d, const VM* x, VM* y, VM) {
    const VM density = hn::Mul(hn::Set(d, 0.39894228040143268f),
                               fast_exp(d, hn::Mul(hn::Set(d, -0.5f), hn::Mul(x[0], x[0]))));
    y[0] = hn::Mul(x[1], hn::MulAdd(x[0], density, normal_cdf(d, x[0])));
  }
};
struct Silu {
  static constexpr int kIn = 1, kOut = 1;
  static HWY_INLINE void apply(DM d, const VM* x, VM* y, VM) { y[0] = silu(d, x[0]); }
};
HWY_INLINE VM silu_slope(DM d, VM x, VM s) {
  const VM one = hn::Set(d, 1.0f);
  return hn::Mul(s, hn::MulAdd(x, hn::Sub(one, s), one));
}
struct SiluGrad {
  static constexpr int kIn = 2, kOut = 1;
  static HWY_INLINE void apply(DM d, const VM* x, VM* y, VM) {
    y[0] = hn::Mul(x[1], silu_slope(d, x[0], fast_sigmoid(d, x[0])));
  }
};
struct QuickGelu {
  static constexpr int kIn = 1, kOut = 1;
  static HWY_INLINE void apply(DM d, const VM* x, VM* y, VM slope) {
    y[0] = hn::Mul(x[0], fast_sigmoid(d, hn::Mul(x[0], slope)));
  }
};
struct QuickGeluGrad {
  static constexpr int kIn = 2, kOut = 1;
  static HWY_INLINE void apply(DM d, const VM* x, VM* y, VM slope) {
    const VM u = hn::Mul(x[0], slope);
    y[0] = hn::Mul(x[1], silu_slope(d, u, fast_sigmoid(d, u)));
  }
};
struct Tanh {
  static constexpr int kIn = 1, kOut = 1;
  static HWY_INLINE void apply(DM d, const VM* x, VM* y, VM) { y[0] = fast_tanh(d, x[0]); }
};
struct TanhGrad {
  static constexpr int kIn = 2, kOut = 1;
  static HWY_INLINE void apply(DM d, const VM* x, VM* y, VM) {
    y[0] = hn::Mul(x[1], hn::NegMulAdd(x[0], x[0], hn::Set(d, 1.0f)));
  }
};
struct Sigmoid {
  static constexpr int kIn = 1, kOut = 1;
  static HWY_INLINE void apply(DM d, const VM* x, VM* y, VM) { y[0] = fast_sigmoid(d, x[0]); }
};
struct SigmoidGrad {
  static constexpr int kIn = 2, kOut = 1;
  static HWY_INLINE void apply(DM d, const VM* x, VM* y, VM) {
    y[0] = hn::Mul(hn::Mul(x[1], x[0]), hn::Sub(hn::Set(d, 1.0f), x[0]));
  }
};
struct Swiglu {
  static constexpr int kIn = 2, kOut = 1;
  static HWY_INLINE void apply(DM d, const VM* x, VM* y, VM) { y[0] = hn::Mul(silu(d, x[0]), x[1]); }
};
// gate, up, dy -> dgate, dup
struct SwigluGrad {
  static constexpr int kIn = 3, kOut = 2;
  static HWY_INLINE void apply(DM d, const VM* x, VM* y, VM) {
    const VM s = fast_sigmoid(d, x[0]);
    y[0] = hn::Mul(hn::Mul(x[2], x[1]), silu_slope(d, x[0], s));
    y[1] = hn::Mul(x[2], hn::Mul(x[0], s));
  }
};

template <class Op>
void map_elements(const float* const* in, float* const* out, float factor, int64_t begin, int64_t end) {
  const DM d;
  const VM scale = hn::Set(d, factor);
  VM x[Op::kIn], y[Op::kOut];
  int64_t i = begin;
  for (; i + kMapLanes <= end; i += kMapLanes) {
    for (int j = 0; j < Op::kIn; ++j) x[j] = hn::LoadU(d, in[j] + i);
    Op::apply(d, x, y, scale);
    for (int j = 0; j < Op::kOut; ++j) hn::StoreU(y[j], d, out[j] + i);
  }
  if (i == end) return;
  alignas(64) float part[kMapLanes] = {};
  for (int j = 0; j < Op::kIn; ++j) {
    std::copy(in[j] + i, in[j] + end, part);
    x[j] = hn::Load(d, part);
  }
  Op::apply(d, x, y, scale);
  for (int j = 0; j < Op::kOut; ++j) {
    hn::Store(y[j], d, part);
    std::copy(part, part + (end - i), out[j] + i);
  }
}

MapFn map_function(Map map) {
  static constexpr std::array<MapFn, static_cast<size_t>(Map::kCount)> kFunctions = {
      map_elements<Add>,           map_elements<Sub>,         map_elements<Mul>,
      map_elements<Div>,           map_elements<Scale>,       map_elements<Neg>,
      map_elements<Square>,        map_elements<Sqrt>,        map_elements<Exp>,
      map_elements<Relu>,          map_elements<ReluGrad>,    map_elements<GeluTanh>,
      map_elements<GeluTanhGrad>,  map_elements<GeluErf>,     map_elements<GeluErfGrad>,
      map_elements<Silu>,          map_elements<SiluGrad>,    map_elements<QuickGelu>,
      map_elements<QuickGeluGrad>, map_elements<Tanh>,        map_elements<TanhGrad>,
      map_elements<Sigmoid>,       map_elements<SigmoidGrad>, map_elements<Swiglu>,
      map_elements<SwigluGrad>};
  return kFunctions[static_cast<size_t>(map)];
}

}  // namespace tessera::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::cpu {

HWY_EXPORT(map_function);

namespace {

// `scalar_operand`: the factor is read from operand 1 at launch.
Result<PreparedKernel> prepare_map(const KernelSpec& spec, Map map, double flops_per_element,
                                   float factor = 1, bool scalar_operand = false) {
  TSR_RETURN_IF_ERROR(require_simd_f32(spec));
  const int64_t count = spec.output_elements(0);
  const int in_count = scalar_operand ? 1 : spec.input_count(), out_count = spec.output_count();
  const MapFn function = HWY_DYNAMIC_DISPATCH(map_function)(map);
  return simd_prepared(
      spec, flops_per_element * static_cast<double>(count), make_kernel([=](const LaunchArgs& args) {
        const float* in[3] = {};
        float* out[2] = {};
        for (int i = 0; i < in_count; ++i) in[i] = args.in<float>(i);
        for (int i = 0; i < out_count; ++i) out[i] = args.out<float>(i);
        const float scale = scalar_operand ? *args.in<float>(1) : factor;
        args.pool.parallel_ranges(count, kMapGrain,
                                  [&](int64_t begin, int64_t end) { function(in, out, scale, begin, end); });
      }));
}

bool tanh_form(const KernelSpec& spec) { return spec.string("approximate") == "tanh"; }

}  // namespace

Result<PreparedKernel> prepare_add_simd(const KernelSpec& spec) { return prepare_map(spec, Map::kAdd, 1); }
Result<PreparedKernel> prepare_sub_simd(const KernelSpec& spec) { return prepare_map(spec, Map::kSub, 1); }
Result<PreparedKernel> prepare_mul_simd(const KernelSpec& spec) { return prepare_map(spec, Map::kMul, 1); }
Result<PreparedKernel> prepare_div_simd(const KernelSpec& spec) { return prepare_map(spec, Map::kDiv, 1); }
Result<PreparedKernel> prepare_scale_simd(const KernelSpec& spec) {
  return prepare_map(spec, Map::kScale, 1, static_cast<float>(spec.f64("factor")));
}
Result<PreparedKernel> prepare_scale_by_simd(const KernelSpec& spec) {
  return prepare_map(spec, Map::kScale, 1, 1, true);
}
Result<PreparedKernel> prepare_neg_simd(const KernelSpec& spec) { return prepare_map(spec, Map::kNeg, 1); }
Result<PreparedKernel> prepare_square_simd(const KernelSpec& spec) {
  return prepare_map(spec, Map::kSquare, 1);
}
Result<PreparedKernel> prepare_sqrt_simd(const KernelSpec& spec) { return prepare_map(spec, Map::kSqrt, 4); }
Result<PreparedKernel> prepare_exp_simd(const KernelSpec& spec) { return prepare_map(spec, Map::kExp, 20); }
Result<PreparedKernel> prepare_relu_simd(const KernelSpec& spec) { return prepare_map(spec, Map::kRelu, 1); }
Result<PreparedKernel> prepare_relu_grad_simd(const KernelSpec& spec) {
  return prepare_map(spec, Map::kReluGrad, 1);
}
Result<PreparedKernel> prepare_gelu_simd(const KernelSpec& spec) {
  return prepare_map(spec, tanh_form(spec) ? Map::kGeluTanh : Map::kGeluErf, 30);
}
Result<PreparedKernel> prepare_gelu_grad_simd(const KernelSpec& spec) {
  return prepare_map(spec, tanh_form(spec) ? Map::kGeluTanhGrad : Map::kGeluErfGrad, 40);
}
Result<PreparedKernel> prepare_silu_simd(const KernelSpec& spec) { return prepare_map(spec, Map::kSilu, 25); }
Result<PreparedKernel> prepare_silu_grad_simd(const KernelSpec& spec) {
  return prepare_map(spec, Map::kSiluGrad, 30);
}
Result<PreparedKernel> prepare_quick_gelu_simd(const KernelSpec& spec) {
  return prepare_map(spec, Map::kQuickGelu, 26, static_cast<float>(kQuickGelu));
}
Result<PreparedKernel> prepare_quick_gelu_grad_simd(const KernelSpec& spec) {
  return prepare_map(spec, Map::kQuickGeluGrad, 31, static_cast<float>(kQuickGelu));
}
Result<PreparedKernel> prepare_tanh_simd(const KernelSpec& spec) { return prepare_map(spec, Map::kTanh, 35); }
Result<PreparedKernel> prepare_tanh_grad_simd(const KernelSpec& spec) {
  return prepare_map(spec, Map::kTanhGrad, 3);
}
Result<PreparedKernel> prepare_sigmoid_simd(const KernelSpec& spec) {
  return prepare_map(spec, Map::kSigmoid, 25);
}
Result<PreparedKernel> prepare_sigmoid_grad_simd(const KernelSpec& spec) {
  return prepare_map(spec, Map::kSigmoidGrad, 3);
}
Result<PreparedKernel> prepare_swiglu_simd(const KernelSpec& spec) {
  return prepare_map(spec, Map::kSwiglu, 26);
}
Result<PreparedKernel> prepare_swiglu_grad_simd(const KernelSpec& spec) {
  return prepare_map(spec, Map::kSwigluGrad, 35);
}

}  // namespace tessera::cpu
#endif
