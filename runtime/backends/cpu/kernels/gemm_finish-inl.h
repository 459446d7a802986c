// Bias and activation of a tile of C, per instruction set.
#if defined(TSR_GEMM_FINISH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TSR_GEMM_FINISH_INL_H_
#undef TSR_GEMM_FINISH_INL_H_
#else
#define TSR_GEMM_FINISH_INL_H_
#endif

#include <algorithm>

#include "runtime/backends/cpu/kernels/gemm.h"
#include "runtime/backends/cpu/kernels/gemm_micro-inl.h"
#include "runtime/backends/cpu/kernels/vector_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::cpu::HWY_NAMESPACE {

// pre = C (+ bias); C = activation(pre), for a tile that is still in L1.
template <class Act>
void finish_rows(const Act& act, float* c, float* pre, const float* bias, int64_t ld, int64_t rows,
                 int64_t columns) {
  const DF d;
  for (int64_t i = 0; i < rows; ++i) {
    float* HWY_RESTRICT row = c + i * ld;
    float* HWY_RESTRICT pre_row = pre == nullptr ? nullptr : pre + i * ld;
    int64_t j = 0;
    for (; j + kLanes <= columns; j += kLanes) {
      VF x = hn::LoadU(d, row + j);
      if (bias != nullptr) x = hn::Add(x, hn::LoadU(d, bias + j));
      if (pre_row != nullptr) hn::StoreU(x, d, pre_row + j);
      hn::StoreU(act(d, x), d, row + j);
    }
    if (j < columns) {
      alignas(64) float part[kLanes] = {};
      for (int64_t i2 = j; i2 < columns; ++i2) part[i2 - j] = row[i2] + (bias != nullptr ? bias[i2] : 0.0f);
      if (pre_row != nullptr) std::copy(part, part + (columns - j), pre_row + j);
      hn::Store(act(d, hn::Load(d, part)), d, part);
      std::copy(part, part + (columns - j), row + j);
    }
  }
}

struct ActNone {
  HWY_INLINE VF operator()(DF, VF x) const { return x; }
};
struct ActRelu {
  HWY_INLINE VF operator()(DF d, VF x) const { return hn::Max(x, hn::Zero(d)); }
};
struct ActGeluTanh {
  HWY_INLINE VF operator()(DF d, VF x) const { return gelu_tanh(d, x); }
};
struct ActGeluErf {
  HWY_INLINE VF operator()(DF d, VF x) const { return gelu_erf(d, x); }
};
struct ActSilu {
  HWY_INLINE VF operator()(DF d, VF x) const { return silu(d, x); }
};

// pre (unless null) = C (+ bias unless null); C = activation(pre). Rows are `ld` apart.
HWY_INLINE void finish_tile(Activation activation, float* c, float* pre, const float* bias, int64_t ld,
                            int64_t rows, int64_t columns) {
  switch (activation) {
    case Activation::kNone: return finish_rows(ActNone(), c, pre, bias, ld, rows, columns);
    case Activation::kRelu: return finish_rows(ActRelu(), c, pre, bias, ld, rows, columns);
    case Activation::kGeluTanh: return finish_rows(ActGeluTanh(), c, pre, bias, ld, rows, columns);
    case Activation::kGeluErf: return finish_rows(ActGeluErf(), c, pre, bias, ld, rows, columns);
    case Activation::kSilu: return finish_rows(ActSilu(), c, pre, bias, ld, rows, columns);
  }
}

}  // namespace tessera::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
