// Tensor core operations: the product of 16 x 16 by 16 x 8 (sm_80 and later), loads of 8 x 8 matrices from
// shared memory, and asynchronous copies to shared memory. Layouts as in the PTX manual; with g = lane / 4
// and i = lane % 4 a lane holds
//   a: rows g, g + 8, g, g + 8 at columns 2i, 2i, 2i + 8, 2i + 8 (pairs)
//   b: rows 2i, 2i + 8 (pairs) at column g
//   d: rows g, g, g + 8, g + 8 at columns 2i, 2i + 1, 2i, 2i + 1
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

namespace tessera::cuda {

// d += a b, summed in f32.
template <class T>
__device__ inline void mma(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  if constexpr (std::is_same_v<T, __half>)
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};\n"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  else
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};\n"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

__device__ inline uint32_t shared_address(const void* at) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(at));
}

// Loads four matrices of 8 x 8; lane 8j + r gives the address of row r of matrix j. A lane gets the pair at
// row g, columns 2i and 2i + 1 of each.
__device__ inline void load_matrices(uint32_t (&to)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];\n"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(shared_address(row))
               : "memory");
}
// The same, transposed: the pair at rows 2i and 2i + 1, column g.
__device__ inline void load_matrices_transposed(uint32_t (&to)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];\n"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(shared_address(row))
               : "memory");
}

// Copies 16 bytes to shared memory, zeros where `there` is false (`from` is not read then).
__device__ inline void copy_async(void* to, const void* from, bool there) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(shared_address(to)), "l"(from),
               "r"(there ? 16 : 0)
               : "memory");
}
__device__ inline void copy_async_commit() { asm volatile("cp.async.commit_group;\n" ::: "memory"); }
// Waits for all copies of this thread; those of others have arrived after the barrier that follows.
__device__ inline void copy_async_wait() { asm volatile("cp.async.wait_all;\n" ::: "memory"); }

// Prefetches the 128 bytes around an address to the L2 cache. Later writes are seen: all of the device's
// writes go through that cache.
__device__ inline void prefetch_to_l2(const void* at) {
  asm volatile("prefetch.global.L2 [%0];\n" ::"l"(__cvta_generic_to_global(at)));
}

// Two values as one register, the first in the low half.
template <class T>
__device__ inline uint32_t pack_pair(float low, float high) {
  uint32_t bits;
  if constexpr (std::is_same_v<T, __half>) {
    const __half2 pair = __floats2half2_rn(low, high);
    memcpy(&bits, &pair, sizeof(bits));
  } else {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
    memcpy(&bits, &pair, sizeof(bits));
  }
  return bits;
}

}  // namespace tessera::cuda
