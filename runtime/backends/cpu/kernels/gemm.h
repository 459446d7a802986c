// Gemm: C[m, n] = A[m, k] · B[k, n] in f32, with bias and activation fused. The kernels are packed (Highway,
// run-time dispatch). Every other fast kernel that multiplies matrices is built on Gemm or on
// gemm_micro-inl.h.
//
// How it works (BLIS, Van Zee & van de Geijn 2015, with B packed just in time). A is packed once per chunk
// into the workspace as panels of MR rows. A task owns a strip of C, a few column panels of NR wide: it packs
// NR columns of B, KC deep, into a buffer that stays in L1 and streams A's panels past it from L2 or L3.
// Nothing is allocated.
//
// Up to kSkinnyRows rows of A read B in place, at memory speed
// (gemm_skinny.cc); so does a long A with a few columns of B (gemm_narrow.h).
//
// Bits: a row of C depends on its row of A, on B, and on the instruction set; not on other rows or their number, nor
// on threads. K is cut into blocks of kGemmDepth; sums of blocks are added in ascending order. The sum of a block is
//   B with rows of consecutive columns   one chain of multiply-adds in ascending order; also in TF32, which the packed
//                                        kernel multiplies for any number of rows
//   transposed B                         by lanes: number k of the block belongs to chain k mod L, where L is 4, 8 or
//                                        16, the floats of a vector; the chains are added in ascending order. So dot
//                                        products read rows of B without transposing them. Against one chain the
//                                        packed kernel loses 2 to 5 % (512x3072x768: 231 of 245 GFLOP/s), while few
//                                        rows that transpose B in registers lose 15 to 30 % from memory, half in L3.
#pragma once

#include <cstdint>

#include "runtime/backends/cpu/cpu_kernel.h"

namespace tessera::cpu {

// Numbers of k in a block. 256 x 48 floats of B are 48 KiB, the L1 of current cores; where L1 is 32 KiB the panel
// streams from L2 at 16 bytes a cycle, which costs little.
inline constexpr int64_t kGemmDepth = 256;
// Up to this many rows B is read once, unpacked: of f32, and of 16 bits, where more rows have products of their own.
inline constexpr int64_t kSkinnyRows = 16, kSkinnyHalfRows = 8;

enum class Activation : uint8_t { kNone, kRelu, kGeluTanh, kGeluErf, kSilu };

struct Gemm {
  int64_t m = 0, n = 0, k = 0;
  // Element (i, j) of A is a[i * a_row + j * a_col], and one of the two strides is 1; B likewise. C is
  // row-major and dense.
  int64_t a_row = 0, a_col = 1;
  int64_t b_row = 0, b_col = 1;
  Activation activation = Activation::kNone;
  bool adds = false;  // C += A · B, without bias and activation
  bool tf32 = false;  // elements of A and B are rounded to TF32 as they are packed
  // bf16 and f16: B is widened as it is packed.
  DType b_type = DType::kF32;

  int64_t b_bytes() const { return b_type == DType::kF32 ? 4 : 2; }  // of an element
};

struct GemmBuffers {
  const float* a = nullptr;
  const float* b = nullptr;
  const uint16_t* b_16 = nullptr;  // instead of b where b_type has 16 bits
  const float* bias = nullptr;  // [n] or null
  float* c = nullptr;
  float* pre = nullptr;  // [m, n]: C before the activation; or null
  void* workspace = nullptr;
};

int64_t gemm_workspace_bytes(const Gemm& gemm);
void run_gemm(const Gemm& gemm, const GemmBuffers& buffers, const Pool& pool);

// A product of few rows in tasks that need not wait for one another; 0 for any other.
int64_t skinny_gemm_tasks(const Gemm& gemm);
void run_skinny_gemm_task(const Gemm& gemm, const GemmBuffers& buffers, int64_t task);

}  // namespace tessera::cpu
