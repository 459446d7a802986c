// Building blocks of attention by tiles, per instruction set: products of tiles, keys in the order that these want.
#if defined(TSR_ATTENTION_TILES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TSR_ATTENTION_TILES_INL_H_
#undef TSR_ATTENTION_TILES_INL_H_
#else
#define TSR_ATTENTION_TILES_INL_H_
#endif

#include <algorithm>
#include <limits>

#include "hwy/highway.h"
#include "runtime/backends/cpu/kernels/attention_shape.h"
#include "runtime/backends/cpu/kernels/gemm_micro-inl.h"
#include "runtime/backends/cpu/kernels/vector_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::cpu::HWY_NAMESPACE {

inline constexpr int kPanel = 2 * kLanes;  // columns of a product below; tile extents are multiples of it

// C[rows, columns] (+)= A · B for tiles: columns of two vectors. A row's bits depend on nothing but its own.
inline HWY_NOINLINE void tile_product(int64_t rows, int64_t columns, int64_t k_count, const float* a,
                                      int64_t a_row, int64_t a_col, const float* b, int64_t ldb, float* c,
                                      int64_t ldc, bool accumulate) {
  for (int64_t j = 0; j < columns; j += kPanel) {
    int64_t i = 0;
    for (; i + kMR <= rows; i += kMR)
      micro_kernel<kMR, 2, false>(k_count, a + i * a_row, a_row, a_col, b + j, ldb, c + i * ldc + j, ldc,
                                  accumulate);
    if (rows - i >= 4) {
      micro_kernel<4, 2, false>(k_count, a + i * a_row, a_row, a_col, b + j, ldb, c + i * ldc + j, ldc,
                                accumulate);
      i += 4;
    }
    switch (rows - i) {
      case 3:
        micro_kernel<3, 2, false>(k_count, a + i * a_row, a_row, a_col, b + j, ldb, c + i * ldc + j, ldc,
                                  accumulate);
        break;
      case 2:
        micro_kernel<2, 2, false>(k_count, a + i * a_row, a_row, a_col, b + j, ldb, c + i * ldc + j, ldc,
                                  accumulate);
        break;
      case 1:
        micro_kernel<1, 2, false>(k_count, a + i * a_row, a_row, a_col, b + j, ldb, c + i * ldc + j, ldc,
                                  accumulate);
        break;
      default: break;
    }
  }
}

inline int64_t padded(int64_t extent, int64_t unit) { return (extent + unit - 1) / unit * unit; }

// out[0, width) = factor * in[0, count), zero from count on.
inline void copy_scaled(const float* in, int64_t count, float factor, float* out, int64_t width) {
  const DF d;
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes)
    hn::StoreU(hn::Mul(hn::LoadU(d, in + i), hn::Set(d, factor)), d, out + i);
  for (; i < count; ++i) out[i] = in[i] * factor;
  for (; i < width; ++i) out[i] = 0;
}

inline float dot(const float* a, const float* b, int64_t count) {
  const DF d;
  VF sum0 = hn::Zero(d), sum1 = hn::Zero(d);
  int64_t i = 0;
  for (; i + 2 * kLanes <= count; i += 2 * kLanes) {
    sum0 = hn::MulAdd(hn::LoadU(d, a + i), hn::LoadU(d, b + i), sum0);
    sum1 = hn::MulAdd(hn::LoadU(d, a + i + kLanes), hn::LoadU(d, b + i + kLanes), sum1);
  }
  for (; i + kLanes <= count; i += kLanes) sum0 = hn::MulAdd(hn::LoadU(d, a + i), hn::LoadU(d, b + i), sum0);
  float sum = hn::GetLane(hn::SumOfLanes(d, hn::Add(sum0, sum1)));
  for (; i < count; ++i) sum += a[i] * b[i];
  return sum;
}

// y[0, count) += factor * x[0, count)
inline void add_scaled(float factor, const float* x, float* y, int64_t count) {
  const DF d;
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes)
    hn::StoreU(hn::MulAdd(hn::Set(d, factor), hn::LoadU(d, x + i), hn::LoadU(d, y + i)), d, y + i);
  for (; i < count; ++i) y[i] += factor * x[i];
}

// A block of keys or values: `count` rows of D, `stride` apart, as [D][kTileKeys]; of the `there` rows in memory
// those after the last are read too where that saves time, and zero follows up to a whole panel.
inline void pack_keys(const float* in, int64_t stride, int64_t count, int64_t there, int64_t D, float* out) {
  const DF d;
  int64_t s = 0;
  for (; s < count && s + kLanes <= there; s += kLanes)
    pack_transposed(d, in + s * stride, stride, D, out + s, kTileKeys);
  const int64_t end = padded(count, kPanel);
  for (int64_t k = 0; s < end && k < D; ++k)
    for (int64_t i = s; i < end; ++i) out[k * kTileKeys + i] = i < count ? in[i * stride + k] : 0.0f;
}

// Scores [0, count) of a row: caps them, and makes those before `from` and those of other segments -inf. Whether one is
// left. `segments` of the keys may be null.
inline bool edit_scores(float softcap, int64_t from, int64_t count, const int32_t* segments, int32_t own,
                        float* scores) {
  constexpr float kNone = -std::numeric_limits<float>::infinity();
  const DF d;
  if (from >= count) return false;
  if (softcap > 0) {
    const VF cap = hn::Set(d, softcap), inverse = hn::Set(d, 1 / softcap);
    for (int64_t j = from / kLanes * kLanes; j < count; j += kLanes)
      hn::Store(hn::Mul(cap, fast_tanh(d, hn::Mul(hn::Load(d, scores + j), inverse))), d, scores + j);
  }
  for (int64_t j = 0; j < from; ++j) scores[j] = kNone;
  if (segments == nullptr) return true;
  bool is_any = false;
  for (int64_t j = from; j < count; ++j) {
    const bool same = segments[j] == own;
    scores[j] = same ? scores[j] : kNone;
    is_any |= same;
  }
  return is_any;
}

// Rows of keys or values as the right operand of a product: in place, or a zero-padded copy when D is no
// multiple of a panel.
struct KeyRows {
  const float* data;
  int64_t stride;
  KeyRows(const float* in, int64_t in_stride, int64_t count, int64_t D, int64_t width, float* copy)
      : data(in), stride(in_stride) {
    if (D == width) return;
    for (int64_t s = 0; s < count; ++s) copy_scaled(in + s * in_stride, D, 1, copy + s * width, width);
    data = copy;
    stride = width;
  }
};

}  // namespace tessera::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
