// Quantisation of activations, per instruction set: a row at a time, blocks of 32 or 256 elements.
//   scale = largest magnitude / 127 (f32), code = x / scale rounded to nearest even, -127 to 127
// The scale of a block of 32, and its product with the sum of codes, are then rounded to f16, as
// in GGUF's Q8_0 and Q8_1, unless that is subnormal or infinite: so results are equal to theirs.
// A block that holds a number that is not finite gets a scale that is not finite either, so that no product
// hides it. A block of zeros, or of magnitudes below 1e-36, has the scale 0.
#if defined(TSR_QUANTIZED_ACTIVATIONS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TSR_QUANTIZED_ACTIVATIONS_INL_H_
#undef TSR_QUANTIZED_ACTIVATIONS_INL_H_
#else
#define TSR_QUANTIZED_ACTIVATIONS_INL_H_
#endif

#include <cmath>
#include <limits>

#include "graph/base/half.h"
#include "runtime/backends/cpu/kernels/quantized_vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::cpu::HWY_NAMESPACE {

HWY_INLINE float round_to_f16(float value) {
  const float magnitude = std::fabs(value);
  return magnitude >= 0x1p-14f && magnitude <= 65504.0f ? f32_from_f16(f16_from_f32(value)) : value;
}

// Writes the codes of `count` numbers, returns their scale.
HWY_INLINE float quantize_block(const float* x, int64_t count, int8_t* codes) {
  const DF d;
  const hn::Rebind<int8_t, DF> d8;
  V32 magnitude = hn::Zero(D32());  // bits of magnitudes are ordered as these are
  for (int64_t i = 0; i < count; i += kLanes)
    magnitude = hn::Max(magnitude, hn::BitCast(D32(), hn::Abs(hn::LoadU(d, x + i))));
  const int32_t bits = hn::GetLane(hn::MaxOfLanes(D32(), magnitude));
  const bool finite = bits < 0x7f800000;
  float most;
  std::memcpy(&most, &bits, sizeof most);
  if (!finite || most < 1e-36f) {
    std::memset(codes, 0, static_cast<size_t>(count));
    return finite ? 0.0f : std::numeric_limits<float>::quiet_NaN();
  }
  const VF inverse = hn::Set(d, 127.0f / most);
  for (int64_t i = 0; i < count; i += kLanes)
    hn::StoreU(hn::DemoteTo(d8, hn::NearestInt(hn::Mul(hn::LoadU(d, x + i), inverse))), d8, codes + i);
  return most / 127.0f;
}

// Sums of codes: of the first two of each unit of four, and of the other two.
struct CodeSums {
  int32_t first, second;
  HWY_INLINE int32_t total() const { return first + second; }
};
HWY_INLINE CodeSums sum_codes(const int8_t* codes, int64_t count) {
  alignas(64) static constexpr int32_t kFirst[16] = {-1, -1, 0, 0, -1, -1, 0, 0, -1, -1, 0, 0, -1, -1, 0, 0};
  const hn::Rebind<int8_t, DF> d8;
  V32 sums = hn::Zero(D32());
  for (int64_t i = 0; i < count; i += kLanes)
    sums = hn::Add(sums, hn::PromoteTo(D32(), hn::LoadU(d8, codes + i)));
  const int32_t first = hn::GetLane(hn::SumOfLanes(D32(), hn::And(sums, hn::Load(D32(), kFirst))));
  return {first, hn::GetLane(hn::SumOfLanes(D32(), sums)) - first};
}

// Initial values of sums of products with codes: the sum of the activations times
// -offset. Plain sums keep a unit's codes 0 and 1 apart from 2 and 3, in 16 bits
// each (which wide forms exceed and never read); VNNI has one of 32 bits.
HWY_INLINE void store_starts(CodeSums sums, int offset, std::byte* plain, std::byte* vnni) {
  const int16_t words[2] = {static_cast<int16_t>(-offset * sums.first),
                            static_cast<int16_t>(-offset * sums.second)};
  const int32_t sum = -offset * sums.total();
  std::memcpy(plain, words, sizeof words);
  std::memcpy(vnni, &sum, sizeof sum);
}

HWY_INLINE void store_float(float value, std::byte* out) { std::memcpy(out, &value, sizeof value); }

// Codes as i16, in a unit 0 2 1 3.
HWY_INLINE void store_signed_codes(const int8_t* codes, int64_t count, std::byte* out) {
  int16_t words[256];
  for (int64_t i = 0; i < count; i += 4) {
    words[i] = codes[i];
    words[i + 1] = codes[i + 2];
    words[i + 2] = codes[i + 1];
    words[i + 3] = codes[i + 3];
  }
  std::memcpy(out, words, static_cast<size_t>(count) * sizeof(int16_t));
}

// The layouts are at the dot products.
HWY_INLINE void quantize_activation_block(const QuantizedLayout& layout, const float* x, std::byte* out) {
  alignas(64) int8_t codes[256];
  const int64_t count = layout.elements();
  const float scale = quantize_block(x, count, codes);
  switch (layout.form) {
    case DotForm::kWide32:
    case DotForm::kUnsigned32: {
      const CodeSums sums = sum_codes(codes, 32);
      std::memcpy(out, codes, 32);
      store_starts(sums, layout.offset, out + 32, out + 44);
      store_float(round_to_f16(scale), out + 36);
      store_float(round_to_f16(scale * static_cast<float>(sums.total())), out + 40);
      return;
    }
    case DotForm::kWide256:
    case DotForm::kUnsigned256: {
      std::memcpy(out, codes, 256);
      for (int g = 0; g < 16; ++g) {
        const CodeSums sums = sum_codes(codes + 16 * g, 16);
        const auto word = static_cast<int16_t>(sums.total());
        store_starts(sums, layout.offset, out + 256 + 4 * g, out + 368 + 4 * g);
        std::memcpy(out + 320 + 2 * g, &word, sizeof word);
      }
      store_float(scale, out + 352);
      std::memset(out + 356, 0, 12);
      return;
    }
    case DotForm::kSigned32:
    case DotForm::kSigned256:
      store_signed_codes(codes, count, out);
      store_float(count == 32 ? round_to_f16(scale) : scale, out + 2 * count);
      std::memset(out + 2 * count + 4, 0, 12);
      return;
    case DotForm::kTable64: return;  // it has no integer products
  }
}

}  // namespace tessera::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
