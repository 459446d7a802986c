// Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011), with the bits of the
// CPU backend: a pure function of a counter and a key, so that a shard draws the same numbers as the whole
// tensor at the same logical index.
#pragma once

#include <cstdint>

namespace tessera::cuda {

struct PhiloxBits {
  uint32_t word[4];
};

// 128 random bits for the element `index` of the stream (`seed`, `salt`).
__device__ inline PhiloxBits philox_bits(uint64_t seed, uint64_t salt, uint64_t index) {
  uint32_t c0 = static_cast<uint32_t>(index), c1 = static_cast<uint32_t>(index >> 32);
  uint32_t c2 = static_cast<uint32_t>(salt), c3 = static_cast<uint32_t>(salt >> 32);
  uint32_t k0 = static_cast<uint32_t>(seed), k1 = static_cast<uint32_t>(seed >> 32);
#pragma unroll
  for (int round = 0; round < 10; ++round) {
    const uint32_t a_high = __umulhi(0xD2511F53u, c0), a_low = 0xD2511F53u * c0;
    const uint32_t b_high = __umulhi(0xCD9E8D57u, c2), b_low = 0xCD9E8D57u * c2;
    c0 = b_high ^ c1 ^ k0;
    c1 = b_low;
    c2 = a_high ^ c3 ^ k1;
    c3 = a_low;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return {{c0, c1, c2, c3}};
}

// The bits of a uniform number: the top 53 bits of the first two words.
__device__ inline uint64_t random_53_bits(const PhiloxBits& bits) {
  return ((static_cast<uint64_t>(bits.word[0]) << 32) | bits.word[1]) >> 11;
}

// Uniform in [0, 1): the top 53 bits of two words, exact in double.
__device__ inline double uniform_from_bits(uint32_t high, uint32_t low) {
  return static_cast<double>(((static_cast<uint64_t>(high) << 32) | low) >> 11) * 0x1p-53;
}

}  // namespace tessera::cuda
