#include "runtime/backends/cpu/kernels/gemv_16.h"

#include <algorithm>
#include <cstring>

#include "runtime/backends/cpu/kernels/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/backends/cpu/kernels/gemv_16.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "runtime/backends/cpu/kernels/bf16_vectors-inl.h"
#include "runtime/backends/cpu/kernels/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::cpu::HWY_NAMESPACE {

template <bool kF16>
HWY_INLINE VR load_widened(const uint16_t* p) {
  if constexpr (kF16) {
    const hn::Rebind<hwy::float16_t, DR> d16;
    return hn::PromoteTo(DR(), hn::LoadU(d16, reinterpret_cast<const hwy::float16_t*>(p)));
  } else {
    return load_bf16(DR(), p);
  }
}

// kM rows of x from m on with kN rows of w from n on. A sum has kChains partial sums in each lane, vectors of k in turn; GCC 12
// keeps arrays of vectors in registers where every index is a constant after unrolling.
template <bool kF16, int kM, int kN, int kChains>
HWY_NOINLINE void dot_block(const Gemv16& g, int64_t m, int64_t n) {
  constexpr int64_t kStep = kChains * kRowLanes;
  constexpr int64_t kAheadBytes = 4096;  // of one row of w; of several, the next ones are fetched
  const DR d;
  VR sums[kM][kN][kChains];
#pragma GCC unroll 8
  for (int i = 0; i < kM; ++i)
#pragma GCC unroll 8
    for (int j = 0; j < kN; ++j)
#pragma GCC unroll 8
      for (int c = 0; c < kChains; ++c) sums[i][j][c] = hn::Zero(d);
  const uint16_t* const w = g.w + n * g.K;
  const int64_t ahead = kN == 1 ? kAheadBytes / 2 : kN * g.K;
  int64_t k = 0;
  for (; k + kStep <= g.K; k += kStep) {
#pragma GCC unroll 8
    for (int j = 0; j < kN; ++j)
#pragma GCC unroll 8
      for (int64_t at = 0; at < kStep; at += 32) __builtin_prefetch(w + j * g.K + k + at + ahead, 0, 3);
#pragma GCC unroll 8
    for (int c = 0; c < kChains; ++c) {
      VR numbers[kN];
#pragma GCC unroll 8
      for (int j = 0; j < kN; ++j) numbers[j] = load_widened<kF16>(w + j * g.K + k + c * kRowLanes);
#pragma GCC unroll 8
      for (int i = 0; i < kM; ++i) {
        const VR x = hn::LoadU(d, g.x + (m + i) * g.K + k + c * kRowLanes);
#pragma GCC unroll 8
        for (int j = 0; j < kN; ++j) sums[i][j][c] = hn::MulAdd(numbers[j], x, sums[i][j][c]);
      }
    }
  }
  for (; k < g.K; k += kRowLanes) {
    const int64_t count = std::min(kRowLanes, g.K - k);
    VR numbers[kN];
#pragma GCC unroll 8
    for (int j = 0; j < kN; ++j) {
      alignas(64) uint16_t part[kRowLanes] = {};
      std::memcpy(part, w + j * g.K + k, sizeof(uint16_t) * static_cast<size_t>(count));
      numbers[j] = load_widened<kF16>(part);
    }
#pragma GCC unroll 8
    for (int i = 0; i < kM; ++i) {
      const float* const at = g.x + (m + i) * g.K + k;
      const VR x = count == kRowLanes ? hn::LoadU(d, at) : load_part(at, count);
#pragma GCC unroll 8
      for (int j = 0; j < kN; ++j) sums[i][j][0] = hn::MulAdd(numbers[j], x, sums[i][j][0]);
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < kM; ++i)
#pragma GCC unroll 8
    for (int j = 0; j < kN; ++j) {
      VR sum = sums[i][j][0];
      if constexpr (kChains == 2) sum = hn::Add(sum, sums[i][j][1]);
      if constexpr (kChains == 4)
        sum = hn::Add(hn::Add(sum, sums[i][j][1]), hn::Add(sums[i][j][2], sums[i][j][3]));
      g.y[(m + i) * g.N + n + j] = sum_of(sum) + (g.bias == nullptr ? 0.0f : g.bias[n + j]);
    }
}

// Up to four of several rows of x, from m on.
template <bool kF16, int kN>
void dot_few(const Gemv16& g, int64_t m, int64_t n) {
  switch (g.M - m) {
    case 1: return dot_block<kF16, 1, kN, 2>(g, m, n);
    case 2: return dot_block<kF16, 2, kN, 2>(g, m, n);
    case 3: return dot_block<kF16, 3, kN, 1>(g, m, n);
    default: return dot_block<kF16, 4, kN, 1>(g, m, n);
  }
}

template <bool kF16>
void dot_rows(const Gemv16& g, int64_t begin, int64_t end) {
  int64_t n = begin;
  if (g.M == 1) {  // through w in the order of memory
    for (; n < end; ++n) dot_block<kF16, 1, 1, 4>(g, 0, n);
    return;
  }
  for (; n + 4 <= end; n += 4)
    for (int64_t m = 0; m < g.M; m += 4) dot_few<kF16, 4>(g, m, n);
  for (; n < end; ++n)
    for (int64_t m = 0; m < g.M; m += 4) dot_few<kF16, 1>(g, m, n);
}

void gemv_16(const Gemv16& g, int64_t begin, int64_t end) {
  if (g.type == DType::kF16) return dot_rows<true>(g, begin, end);
  dot_rows<false>(g, begin, end);
}

}  // namespace tessera::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::cpu {

HWY_EXPORT(gemv_16);

void multiply_gemv_16(const Gemv16& gemv, int64_t begin, int64_t end) {
  HWY_DYNAMIC_DISPATCH(gemv_16)(gemv, begin, end);
}

}  // namespace tessera::cpu
#endif
