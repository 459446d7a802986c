// Quantisation of activations, per instruction set: a row at a time, blocks of 32 or 256 elements.
//   scale = largest magnitude / 127 (f32), code = x / scale rounded to nearest even, -127 to 127
// As in GGUF's Q8_0 and Q8_1 the scale of a block of 32, and it times the sum of the codes, are then rounded
// to f16 where that is neither subnormal nor infinite: whoever computes so gets the same numbers.
// A block that holds a number that is not finite gets a scale that is not finite either, so that no product
// hides it. A block of zeros, or of magnitudes below 1e-36, has the scale 0.
#if defined(TSR_QUANTIZED_ACTIVATIONS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TSR_QUANTIZED_ACTIVATIONS_INL_H_
#undef TSR_QUANTIZED_ACTIVATIONS_INL_H_
#else
#define TSR_QUANTIZED_ACTIVATIONS_INL_H_
#endif

#include <cmath>

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
  VF largest = hn::Zero(d), not_finite = hn::Zero(d);  // the latter: NaN where x is not finite
  for (int64_t i = 0; i < count; i += kLanes) {
    const VF v = hn::LoadU(d, x + i);
    largest = hn::Max(largest, hn::Abs(v));
    not_finite = hn::MulAdd(v, hn::Zero(d), not_finite);
  }
  const float most = hn::GetLane(hn::MaxOfLanes(d, largest));
  const float poison = hn::GetLane(hn::SumOfLanes(d, not_finite));
  if (poison != 0.0f || most < 1e-36f) {
    std::memset(codes, 0, static_cast<size_t>(count));
    return poison != 0.0f ? poison : 0.0f;
  }
  const VF inverse = hn::Set(d, 127.0f / most);
  for (int64_t i = 0; i < count; i += kLanes)
    hn::StoreU(hn::DemoteTo(d8, hn::NearestInt(hn::Mul(hn::LoadU(d, x + i), inverse))), d8, codes + i);
  return most / 127.0f;
}

// What sums of products with codes begin with: the sum of the activations times -offset. Plain sums have a
// unit's codes 0 and 1, 2 and 3 apart, in 16 bits each (which wide forms exceed and never read); VNNI's are
// one of 32 bits.
HWY_INLINE void store_starts(const int8_t* codes, int count, int offset, std::byte* plain, std::byte* vnni) {
  int sums[2] = {0, 0};
  for (int i = 0; i < count; ++i) sums[i / 2 % 2] += codes[i];
  const int16_t words[2] = {static_cast<int16_t>(-offset * sums[0]), static_cast<int16_t>(-offset * sums[1])};
  const int32_t sum = -offset * (sums[0] + sums[1]);
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
      int sum = 0;
      for (int i = 0; i < 32; ++i) sum += codes[i];
      std::memcpy(out, codes, 32);
      store_starts(codes, 32, layout.offset, out + 32, out + 44);
      store_float(round_to_f16(scale), out + 36);
      store_float(round_to_f16(scale * static_cast<float>(sum)), out + 40);
      return;
    }
    case DotForm::kWide256:
    case DotForm::kUnsigned256: {
      std::memcpy(out, codes, 256);
      for (int g = 0; g < 16; ++g) {
        int sum = 0;
        for (int i = 0; i < 16; ++i) sum += codes[16 * g + i];
        const auto word = static_cast<int16_t>(sum);
        store_starts(codes + 16 * g, 16, layout.offset, out + 256 + 4 * g, out + 368 + 4 * g);
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
  }
}

}  // namespace tessera::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
