// One product of cuBLASLt on row-major operands: descriptors, layouts and algorithms, settled when it is
// made.
#pragma once

#include <memory>

#include "graph/base/dtype.h"
#include "runtime/backends/cuda/library.h"

namespace tessera::cuda {

// C [M, N] = op(A) op(B), all row-major. Transposed, A is stored [K, M] and B is stored [N, K].
struct LtShape {
  int64_t M, N, K;
  bool trans_a, trans_b;
  DType dtype;
  bool has_bias;  // [N], added before C is rounded
  // C is gelu (by tanh) of the product, and with `has_pre` the product goes to another matrix, rounded. f16
  // and bf16 with N a multiple of 8 alone.
  bool has_gelu = false, has_pre = false;
  int64_t c_row = 0;    // elements from a row of C to the next; 0: N
  int64_t a_row = 0;    // of A as it is stored; 0: K, transposed M
  bool adds = false;    // C += op(A) op(B)
  bool wide_c = false;  // of f16 and bf16 operands: C is f32
};

class LtProduct {
 public:
  // For the current device; kUnsupported where cuBLASLt is absent or has no algorithm.
  static Result<std::shared_ptr<const LtProduct>> create(const LtShape& shape);
  ~LtProduct();
  LtProduct(const LtProduct&) = delete;
  LtProduct& operator=(const LtProduct&) = delete;

  // `bias` and `pre` as the shape says, else null.
  Status launch(const void* a, const void* b, const void* bias, void* pre, void* c, void* workspace,
                cudaStream_t stream) const;
  static int64_t workspace_bytes(const LtShape& shape);  // of any alignment

 private:
  LtProduct() = default;
  Status settle(const LtShape& shape);
  Status choose(const LtShape& shape, uint32_t alignment, cublasLtMatmulAlgo_t& algorithm) const;

  const CublasLt* lt_ = nullptr;
  cublasLtHandle_t handle_ = nullptr;
  cublasLtMatmulDesc_t desc_ = nullptr;
  cublasLtMatrixLayout_t a_ = nullptr, b_ = nullptr, c_ = nullptr;
  // For operands at multiples of 16 bytes, and for operands anywhere.
  cublasLtMatmulAlgo_t aligned_{}, unaligned_{};
  bool has_aligned_ = false, has_unaligned_ = false, f64_ = false, adds_ = false;
  int64_t workspace_bytes_ = 0;
};

}  // namespace tessera::cuda
