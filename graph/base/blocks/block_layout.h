// Block layouts: the fields of GGUF's block types, and of NF4, as they lie in files, without padding, little-endian. `d`
// is the scale as f16 bits unless said otherwise; `x` below is the value that a code stands for. Kernels of
// every backend read these, so this header includes <cstdint> alone.
//
// Files promise no alignment for a block: copy one out (memcpy) or check the address before a cast.
#pragma once

#include <cstdint>

#ifdef __CUDACC__
#define TSR_BLOCK_FUNCTION __host__ __device__ constexpr
#define TSR_BLOCK_TABLE static __device__ constexpr
#else
#define TSR_BLOCK_FUNCTION constexpr
#define TSR_BLOCK_TABLE inline constexpr
#endif

namespace tessera {

// ---- 32 elements; "halves": byte j has element j in its low nibble, element j + 16 in its high one

struct BlockQ4_0 {  // x = d * (q - 8)
  static constexpr int kElements = 32;
  uint16_t d;
  uint8_t codes[16];  // halves
};
struct BlockQ4_1 {  // x = d * q + m
  static constexpr int kElements = 32;
  uint16_t d, m;
  uint8_t codes[16];  // halves
};
struct BlockQ5_0 {  // x = d * (q - 16)
  static constexpr int kElements = 32;
  uint16_t d;
  uint8_t high[4];    // bit 4 of the code of element j is bit j % 8 of byte j / 8
  uint8_t codes[16];  // halves
};
struct BlockQ5_1 {  // x = d * q + m
  static constexpr int kElements = 32;
  uint16_t d, m;
  uint8_t high[4];
  uint8_t codes[16];  // halves
};
struct BlockQ8_0 {  // x = d * q
  static constexpr int kElements = 32;
  uint16_t d;
  int8_t codes[32];
};
struct BlockIq4Nl {  // x = d * kIq4NlValues[q]
  static constexpr int kElements = 32;
  uint16_t d;
  uint8_t codes[16];  // halves
};
struct BlockMxfp4 {  // x = 2^(exponent - 128) * kE2m1Doubled[q]
  static constexpr int kElements = 32;
  uint8_t exponent;
  uint8_t codes[16];  // halves
};

// ---- other lengths

struct BlockQ1_0 {  // 128 elements; x = bit ? d : -d
  static constexpr int kElements = 128;
  uint16_t d;
  uint8_t codes[16];  // one bit an element, lowest first
};
struct BlockQ2_0 {  // 64 elements; x = d * (q - 1)
  static constexpr int kElements = 64;
  uint16_t d;
  uint8_t codes[16];  // two bits an element, lowest first
};
struct BlockNvfp4 {  // 64 elements in groups of 16; x = ue4m3_halved(scale) * kE2m1Doubled[q]
  static constexpr int kElements = 64;
  uint8_t scales[4];
  uint8_t codes[32];  // a group has 8 bytes: byte j has its element j low, its element j + 8 high
};

struct BlockNf4 {  // 64 elements; x = scale * nf4_value(q)
  static constexpr int kElements = 64;
  uint8_t scale[4];   // f32: the largest magnitude of the block
  uint8_t codes[32];  // byte j has element 2 j in its high nibble, element 2 j + 1 in its low one
};

// ---- 256 elements: K-quants; groups of 16 or 32 elements have integer scales

struct BlockQ2_K {  // groups of 16; x = d * (scale & 15) * q - dmin * (scale >> 4)
  static constexpr int kElements = 256;
  uint8_t scales[16];
  uint8_t codes[64];  // 128 elements in 32 bytes: element 32 s + l in bits 2 s of byte l
  uint16_t d, dmin;
};
struct BlockQ3_K {    // groups of 16; x = d * q3_k_scale(group) * (q - 4), q of 3 bits
  static constexpr int kElements = 256;
  uint8_t high[32];   // bit 2 of the code of element 32 s + l: bit s of byte l
  uint8_t codes[64];  // bits 0 and 1, as in Q2_K
  uint8_t scales[12];
  uint16_t d;
};
struct BlockQ4_K {  // groups of 32; x = d * q4_k_scale(group) * q - dmin * q4_k_min(group)
  static constexpr int kElements = 256;
  uint16_t d, dmin;
  uint8_t scales[12];
  uint8_t codes[128];  // 64 elements in 32 bytes: element l in the low nibble of byte l, element l + 32 high
};
struct BlockQ5_K {  // as Q4_K, with q of 5 bits
  static constexpr int kElements = 256;
  uint16_t d, dmin;
  uint8_t scales[12];
  uint8_t high[32];  // bit 4 of the code of element 32 g + l: bit g of byte l
  uint8_t codes[128];
};
struct BlockQ6_K {  // groups of 16; x = d * scale * (q - 32)
  static constexpr int kElements = 256;
  // 128 elements have 64 bytes of `low` and 32 of `high`; for l < 32 their elements l, l + 32, l + 64, l + 96
  // have bits 0 to 3 in low[l] & 15, low[l + 32] & 15, low[l] >> 4, low[l + 32] >> 4, and bits 4 and 5 in
  // bits 0, 2, 4 and 6 of high[l].
  uint8_t low[128];
  uint8_t high[64];
  int8_t scales[16];
  uint16_t d;
};

// ---- 256 elements: codebooks

struct BlockIq4Xs {  // groups of 32; x = d * (scale - 32) * kIq4NlValues[q]
  static constexpr int kElements = 256;
  uint16_t d;
  uint16_t scales_high;   // bits 4 and 5 of the scale of group g: bits 2 g
  uint8_t scales_low[4];  // bits 0 to 3: nibble g % 2 of byte g / 2
  uint8_t codes[128];     // a group has 16 bytes, halves
};
// Grid types: eight (IQ3: four) elements have one code, the index of a point in a grid (iq_grids.h).
struct BlockIq2Xxs {  // x = d * (0.5 + scale) / 4 * grid * sign
  static constexpr int kElements = 256;
  uint16_t d;
  // A group of 32 has 8 bytes: four codes; then 4 x 7 sign bits (iq_signs) and a scale of 4 bits in 32 bits.
  uint8_t codes[64];
};
struct BlockIq2Xs {  // x = d * (0.5 + scale) / 4 * grid * sign
  static constexpr int kElements = 256;
  uint16_t d;
  uint16_t codes[32];  // 9 bits of code, 7 sign bits (iq_signs)
  uint8_t scales[8];   // one nibble for 16 elements
};
struct BlockIq2S {  // x = d * (0.5 + scale) / 4 * grid * sign
  static constexpr int kElements = 256;
  uint16_t d;
  uint8_t codes[32];  // bits 0 to 7
  uint8_t signs[32];  // one bit an element
  uint8_t high[8];    // bits 8 and 9 of code i: bits 2 (i % 4) of byte i / 4
  uint8_t scales[8];  // one nibble for 16 elements
};
struct BlockIq3Xxs {  // x = d * (0.5 + scale) / 2 * grid * sign
  static constexpr int kElements = 256;
  uint16_t d;
  uint8_t codes[64];
  uint8_t signs[32];  // a group of 32 has 4 x 7 sign bits (iq_signs) and a scale of 4 bits in 32 bits
};
struct BlockIq3S {  // x = d * (1 + 2 scale) * grid * sign
  static constexpr int kElements = 256;
  uint16_t d;
  uint8_t codes[64];  // bits 0 to 7
  uint8_t high[8];    // bit 8 of code i: bit i % 8 of byte i / 8
  uint8_t signs[32];  // one bit an element
  uint8_t scales[4];  // one nibble for 32 elements
};
struct BlockIq1S {  // x = d * (2 scale + 1) * (grid + delta)
  static constexpr int kElements = 256;
  uint16_t d;
  uint8_t codes[32];  // bits 0 to 7
  // One for each group of 32: bits 8 to 10 of four codes in bits 0 to 11,
  // the scale in bits 12 to 14; delta is 1/8, negative where bit 15 is set.
  uint16_t high[8];
};
struct BlockIq1M {    // x = d * (2 scale + 1) * (grid + delta)
  static constexpr int kElements = 256;
  uint8_t codes[32];  // bits 0 to 7
  uint8_t high[16];  // nibble i % 2 of byte i / 2: bits 8 to 10 of code i; delta is 1/8, negative where bit 3
                     // is set
  // One for each group of 64: four scales of 3 bits, one for 16 elements;
  // bits 12 to 15 of all four are the nibbles of d, lowest first.
  uint16_t scales[4];
};

// ---- 256 elements: three values, x = d * (q - 1)

struct BlockTq1_0 {
  static constexpr int kElements = 256;
  // Five codes a byte: trit n of byte b is ((b * 3^n mod 256) * 3) / 256. Element 32 n + l (l < 32) is trit n
  // of byte l, element 160 + 16 n + l (l < 16) is trit n of byte 32 + l.
  uint8_t codes[48];
  uint8_t last[4];  // element 240 + 4 n + l is trit n of byte l
  uint16_t d;
};
struct BlockTq2_0 {
  static constexpr int kElements = 256;
  uint8_t codes[64];  // 128 elements in 32 bytes: element 32 s + l in bits 2 s of byte l
  uint16_t d;
};

static_assert(sizeof(BlockQ4_0) == 18 && sizeof(BlockQ4_1) == 20 && sizeof(BlockQ5_0) == 22);
static_assert(sizeof(BlockQ5_1) == 24 && sizeof(BlockQ8_0) == 34 && sizeof(BlockIq4Nl) == 18);
static_assert(sizeof(BlockMxfp4) == 17 && sizeof(BlockNvfp4) == 36);
static_assert(sizeof(BlockQ1_0) == 18 && sizeof(BlockQ2_0) == 18 && sizeof(BlockNf4) == 36);
static_assert(sizeof(BlockQ2_K) == 84 && sizeof(BlockQ3_K) == 110 && sizeof(BlockQ4_K) == 144);
static_assert(sizeof(BlockQ5_K) == 176 && sizeof(BlockQ6_K) == 210 && sizeof(BlockIq4Xs) == 136);
static_assert(sizeof(BlockIq2Xxs) == 66 && sizeof(BlockIq2Xs) == 74 && sizeof(BlockIq2S) == 82);
static_assert(sizeof(BlockIq3Xxs) == 98 && sizeof(BlockIq3S) == 110);
static_assert(sizeof(BlockIq1S) == 50 && sizeof(BlockIq1M) == 56);
static_assert(sizeof(BlockTq1_0) == 54 && sizeof(BlockTq2_0) == 66);

// ---- values of codes: tables for vectors, which a CUDA file has on the device alone, and functions for both

TSR_BLOCK_TABLE int8_t kIq4NlValues[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                           1,    13,   25,  38,  53,  69,  89,  113};
// Doubled values of E2M1 (OCP Microscaling Formats), so that they are integers.
TSR_BLOCK_TABLE int8_t kE2m1Doubled[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

// NormalFloat (Dettmers et al., QLoRA, appendix E), with the f32 values of bitsandbytes.
TSR_BLOCK_TABLE float kNf4Values[16] = {-1.0f,
                                        -0.6961928009986877f,
                                        -0.5250730514526367f,
                                        -0.39491748809814453f,
                                        -0.28444138169288635f,
                                        -0.18477343022823334f,
                                        -0.09105003625154495f,
                                        0.0f,
                                        0.07958029955625534f,
                                        0.16093020141124725f,
                                        0.24611230194568634f,
                                        0.33791524171829224f,
                                        0.44070982933044434f,
                                        0.5626170039176941f,
                                        0.7229568362236023f,
                                        1.0f};

// Half the value of an unsigned E4M3 scale; 0x7f, a NaN, and the sign bit count as GGML counts them.
TSR_BLOCK_FUNCTION float ue4m3_halved(unsigned code) {
  if (code == 0x7f) return 0.0f;
  const unsigned exponent = code >> 3 & 15, mantissa = code & 7;
  if (exponent == 0) return static_cast<float>(mantissa) * 0x1p-10f;
  return static_cast<float>((8 + mantissa) << exponent) * 0x1p-11f;
}
// The bits of 2^(exponent - 128) as f32; the two least are subnormal.
TSR_BLOCK_FUNCTION uint32_t e8m0_halved_bits(unsigned exponent) {
  return exponent < 2 ? 0x00200000u << exponent : (exponent - 1) << 23;
}
// Eight sign bits from seven: the eighth makes the number of set bits even.
TSR_BLOCK_FUNCTION unsigned iq_signs(unsigned seven) {
  unsigned parity = seven ^ seven >> 4;
  parity ^= parity >> 2;
  parity ^= parity >> 1;
  return (seven & 127) | (parity & 1) << 7;
}
// Scales of 6 bits in 12 bytes; the values begin at -32.
TSR_BLOCK_FUNCTION int q3_k_scale(const uint8_t (&scales)[12], int group) {
  const int low = group < 8 ? scales[group] & 15 : scales[group - 8] >> 4;
  return (low | (scales[8 + group % 4] >> 2 * (group / 4) & 3) << 4) - 32;
}
// Eight scales and eight minima of 6 bits in 12 bytes.
TSR_BLOCK_FUNCTION int q4_k_scale(const uint8_t (&scales)[12], int group) {
  return group < 4 ? scales[group] & 63 : (scales[group + 4] & 15) | (scales[group - 4] >> 6) << 4;
}
TSR_BLOCK_FUNCTION int q4_k_min(const uint8_t (&scales)[12], int group) {
  return group < 4 ? scales[group + 4] & 63 : scales[group + 4] >> 4 | (scales[group] >> 6) << 4;
}

}  // namespace tessera
