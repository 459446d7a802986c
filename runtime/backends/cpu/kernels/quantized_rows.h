// Products with a matrix of blocks: y[M, N] = x[M, K] * W[N, K]^T (+ bias), and dx[M, K] = dy[M, N] * W[N, K]
// for training over frozen weights. W has any block type and stays as the file has it, or with its rows
// interleaved (same bytes, permuted). Pure functions on pointers and ranges; any thread may call them.
//
// Two kinds of activations:
//   q8   each row of x is quantised once (a scale, codes of 8 bits; blocks of 32 elements, for types of 256
//        elements blocks of 256). Integer products, exact within a block; one chain of f32 additions over the
//        blocks for each number of y. Types of integer codes alone (has_integer_codes).
//   f32  W is decoded in cache; one chain of multiply-adds over 256 elements of K, chains added in ascending
//        order. Decoded values are within 2^-23 of decode_blocks, relative to scale * code and minimum.
// A row's bits depend on the row and W alone: not on M, its position, the ranges, or the layout of W. Across
// instruction sets those of q8 differ only where a machine has no fused multiply-add.
//
// K is a multiple of the type's block_elements. `data` need not be aligned.
#pragma once

#include <cstddef>
#include <cstdint>

#include "graph/base/dtype.h"

namespace tessera::cpu {

struct BlockMatrix {
  DType type = DType::kF32;
  int64_t N = 0, K = 0;
  const std::byte* data = nullptr;  // dtype_bytes(type, N * K)
  bool interleaved = false;
};

// Whether the products below exist for a type: all block types.
bool can_multiply_blocks(DType type);

// ---- interleaved rows

// Whether a type can be interleaved: one row then takes 0.6 to 0.95 of the time. The others (iq1, iq2,
// iq3, tq1_0, tq2_0, nvfp4, q1_0, q2_0) keep the file's layout and are unpacked in plain loops, at a
// hundredth of the speed for one row. nf4 keeps it too, but its f32 products are as fast as others'.
bool can_interleave_rows(DType type);
// Rows of a panel on this machine. Panels begin at multiples of it.
int64_t interleaved_rows();
// Permutes panels [panel_begin, panel_end) of N / interleaved_rows() (the rest of the rows, if any, counts as
// one more and is copied). `to` does not overlap `from`.
void interleave_rows(DType type, int64_t N, int64_t K, const std::byte* from, std::byte* to,
                     int64_t panel_begin, int64_t panel_end);

// Copies a row in the file's layout; its blocks.
void copy_row(const BlockMatrix& w, int64_t row, std::byte* out);

// ---- activations = q8

// Bytes of a quantised row, a multiple of 16.
int64_t quantized_row_bytes(DType type, int64_t K);
void quantize_rows(DType type, const float* x, int64_t M, int64_t K, std::byte* out);

// Scratch of one call of any product below, aligned to 64 bytes.
int64_t block_product_scratch_bytes();

// y[m, n] for all M rows of quantised activations and n in [n_begin, n_end); y has N columns, bias [N] or
// null. Ranges that begin at multiples of 2 * interleaved_rows() waste nothing.
void multiply_blocks_q8(const BlockMatrix& w, const std::byte* x, int64_t M, const float* bias, float* y,
                        int64_t n_begin, int64_t n_end, void* scratch);

// ---- activations = f32

// As multiply_blocks_q8, x [M, K] f32. Ranges that begin at multiples of 48 waste nothing.
void multiply_blocks_f32(const BlockMatrix& w, const float* x, int64_t M, const float* bias, float* y,
                         int64_t n_begin, int64_t n_end, void* scratch);

// dx[m, k] = sum over n of dy[m, n] * W[n, k] for all M rows and k in [k_begin, k_end), both whole blocks of
// 256 elements, or K's end. One chain over 64 rows of W, chains added in ascending order.
void multiply_blocks_transposed(const BlockMatrix& w, const float* dy, int64_t M, float* dx, int64_t k_begin,
                                int64_t k_end, void* scratch);

}  // namespace tessera::cpu
