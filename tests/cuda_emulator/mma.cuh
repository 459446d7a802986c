// The functions of kernels/mma.cuh, in plain loops. Asynchronous copies arrive when they are
// waited for.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <cstring>
#include <type_traits>

namespace tessera::cuda {

template <class T>
void mma(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  const uint32_t mine[6] = {a[0], a[1], a[2], a[3], b0, b1};
  const unsigned char* all = emulator::exchange_all(mine, sizeof(mine));
  const auto value = [&](int lane, int word, int half) {
    T element;
    std::memcpy(&element, all + lane * 64 + word * 4 + half * 2, 2);
    return static_cast<double>(static_cast<float>(element));
  };
  const int lane = emulator::lane();
  for (int at = 0; at < 4; ++at) {
    const int row = lane / 4 + at / 2 * 8, col = lane % 4 * 2 + at % 2;
    double sum = d[at];
    for (int k = 0; k < 16; ++k)
      sum += value(row % 8 * 4 + k % 8 / 2, row / 8 + k / 8 * 2, k % 2) *
             value(col * 4 + k % 8 / 2, 4 + k / 8, k % 2);
    d[at] = static_cast<float>(sum);
  }
}

inline void gather_matrices(uint32_t (&to)[4], const void* row, bool transposed) {
  emulator::check_aligned(row);
  const unsigned char* all = emulator::exchange_all(&row, sizeof(row));
  const int lane = emulator::lane();
  for (int matrix = 0; matrix < 4; ++matrix)
    for (int half = 0; half < 2; ++half) {
      const int r = transposed ? lane % 4 * 2 + half : lane / 4,
                c = transposed ? lane / 4 : lane % 4 * 2 + half;
      const unsigned char* from;
      std::memcpy(&from, all + (matrix * 8 + r) * 64, sizeof(from));
      std::memcpy(reinterpret_cast<unsigned char*>(&to[matrix]) + half * 2, from + c * 2, 2);
    }
}
inline void load_matrices(uint32_t (&to)[4], const void* row) { gather_matrices(to, row, false); }
inline void load_matrices_transposed(uint32_t (&to)[4], const void* row) { gather_matrices(to, row, true); }

inline void copy_async(void* to, const void* from, bool there) {
  emulator::copy_async(to, there ? from : nullptr);
}
inline void copy_async_commit() {}
inline void copy_async_wait() { emulator::copy_async_wait(); }

inline void prefetch_to_l2(const void* at) { emulator::check_fetch(at); }

template <class T>
uint32_t pack_pair(float low, float high) {
  const T pair[2] = {static_cast<T>(low), static_cast<T>(high)};
  uint32_t bits;
  std::memcpy(&bits, pair, sizeof(bits));
  return bits;
}

}  // namespace tessera::cuda
