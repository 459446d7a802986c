#include "runtime/backends/cpu/kernels/bf16_rows.h"

#include "runtime/backends/cpu/kernels/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/backends/cpu/kernels/bf16_rows.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "runtime/backends/cpu/kernels/bf16_vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::cpu::HWY_NAMESPACE {

void widen(const uint16_t* in, float* out, int64_t count) { widen_bf16_row(in, out, count); }
void round(const float* in, uint16_t* out, int64_t count) { round_row_to_bf16(in, out, count); }

}  // namespace tessera::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::cpu {

HWY_EXPORT(widen);
HWY_EXPORT(round);

namespace {

constexpr int64_t kTaskElements = 16384;

// Asked once: CPUID takes tens of microseconds in a virtual machine.
bool has_vectors() {
  static const bool it = simd_supported().ok();
  return it;
}

}  // namespace

void widen_bf16(const uint16_t* in, float* out, int64_t count) {
  if (!has_vectors()) {
    for (int64_t i = 0; i < count; ++i) out[i] = f32_from_bf16(in[i]);
    return;
  }
  HWY_DYNAMIC_DISPATCH(widen)(in, out, count);
}

void round_to_bf16(const float* in, uint16_t* out, int64_t count) {
  if (!has_vectors()) {
    for (int64_t i = 0; i < count; ++i) out[i] = bf16_from_f32(in[i]);
    return;
  }
  HWY_DYNAMIC_DISPATCH(round)(in, out, count);
}

void widen_bf16(const Pool& pool, const uint16_t* in, float* out, int64_t count) {
  pool.parallel_ranges(count, kTaskElements,
                       [&](int64_t begin, int64_t end) { widen_bf16(in + begin, out + begin, end - begin); });
}

void round_to_bf16(const Pool& pool, const float* in, uint16_t* out, int64_t count) {
  pool.parallel_ranges(count, kTaskElements, [&](int64_t begin, int64_t end) {
    round_to_bf16(in + begin, out + begin, end - begin);
  });
}

}  // namespace tessera::cpu
#endif
