// CublasLtMatmul: one cuBLASLt matmul of row-major operands. Descriptors, layouts and algorithms are chosen
// when it is made.
#pragma once

#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "graph/base/dtype.h"
#include "runtime/backends/cuda/library.h"

namespace tessera::cuda {

// C [M, N] = op(A) op(B), all row-major. Transposed, A is stored [K, M] and B is stored [N, K].
struct LtShape {
  int64_t M, N, K;
  bool trans_a, trans_b;
  DType dtype;
  bool has_bias;  // [N], added before C is rounded
  // C is gelu (by tanh) of the result; with `has_pre` the result itself is stored in another matrix, rounded.
  // Only f16 and bf16 with N a multiple of 8.
  bool has_gelu = false, has_pre = false;
  int64_t c_row = 0;    // elements from a row of C to the next; 0: N
  int64_t a_row = 0;    // of A as it is stored; 0: K, transposed M
  bool adds = false;    // C is op(A) op(B) plus another matrix, of C's type and layout
  bool wide_c = false;  // of f16 and bf16 operands: C is f32
  // C is the product times the derivative of gelu (by tanh) at the elements of another matrix, `pre` [M, N].
  // Without bias and gelu; types and N as for gelu.
  bool has_gelu_grad = false;
  // A and B are codes of 8-bit floats, A of `dtype`, times a scale each; C is of `c_dtype`, bf16, f16 or f32.
  // B alone is transposed; extents are multiples of 16, and operands are aligned to 16 bytes. A
  // bias has C's type if that has 16 bits. Compute capability 8.9 and later; not e5m2 by e5m2.
  bool scaled = false;
  DType b_dtype = DType::kE4M3, c_dtype = DType::kF32;
  // f32 only: operands are rounded to TF32, at the library's choice to the nearest or towards zero, and their
  // products summed in f32.
  bool tf32 = false;
  // So many products, of operands that follow one another without a gap, or at these distances, in elements,
  // none of them negative; 0 for a left operand of all. Several have no epilogue.
  int64_t batches = 1;
  std::optional<int64_t> a_stride, b_stride, c_stride;
  int64_t most_workspace = std::numeric_limits<int64_t>::max();  // where a launch has not what it would take

  // Elements of an operand of one matmul, as it is stored.
  int64_t a_elements() const { return trans_a ? K * (a_row == 0 ? M : a_row) : M * (a_row == 0 ? K : a_row); }
  int64_t b_elements() const { return K * N; }
  int64_t c_elements() const { return M * (c_row == 0 ? N : c_row); }
};

// Operands of a launch. `bias` and `pre` as in the shape; `pre` is written with gelu, read with its
// gradient. `addend` is of a shape that adds, and may be c.
struct LtOperands {
  const void *a, *b;
  void* c;
  const void* bias = nullptr;
  void* pre = nullptr;
  const void* addend = nullptr;
  // Scaled shapes: one number each, read on the device.
  const float *a_scale = nullptr, *b_scale = nullptr;
};

class CublasLtMatmul {
 public:
  // For the current device; kUnsupported where cuBLASLt is absent or has no algorithm. `algorithm` is a word
  // that fastest() gave, of which operands at multiples of 16 bytes are computed: kFailedPrecondition where
  // this cuBLASLt does not propose it any more. Nothing: the heuristic's first.
  static Result<std::shared_ptr<const CublasLtMatmul>> create(const LtShape& shape,
                                                              std::string_view algorithm = {});
  ~CublasLtMatmul();
  CublasLtMatmul(const CublasLtMatmul&) = delete;
  CublasLtMatmul& operator=(const CublasLtMatmul&) = delete;

  Status launch(const LtOperands& operands, void* workspace, cudaStream_t stream) const;
  static int64_t workspace_bytes(const LtShape& shape);  // of any alignment

  // Runs the heuristic's proposals on memory of its own, waits, and returns the tag of the fastest: its place
  // among the proposals as one digit, and three digits of a hash of its configuration. (lt_timing.cc)
  Result<std::string> fastest() const;

 private:
  CublasLtMatmul() = default;
  Status initialize(const LtShape& shape, std::string_view algorithm);
  // The heuristic's proposals for operands at multiples of `alignment`, best first; at least one.
  Result<std::vector<cublasLtMatmulAlgo_t>> proposals(uint32_t alignment, int count) const;
  std::string algorithm_tag(size_t place, const cublasLtMatmulAlgo_t& algorithm) const;
  Result<cublasLtMatmulAlgo_t> algorithm_of(std::string_view word) const;
  Status launch_as(const cublasLtMatmulAlgo_t& algorithm, const LtOperands& operands, void* workspace,
                   cudaStream_t stream) const;
  Status launch_with(cublasLtMatmulDesc_t desc, const cublasLtMatmulAlgo_t& algorithm,
                     const LtOperands& operands, void* workspace, cudaStream_t stream) const;
  std::string text() const;  // of the shape, for messages
  DType c_type() const;
  // Bytes, of operands that an algorithm is chosen for: 16, or less where a product of several begins at
  // less.
  uint32_t alignment() const;

  static constexpr uint32_t kAlignment = 16;
  static constexpr int kProposals = 8;  // that are timed; a word has one digit for them

  LtShape shape_{};
  const CublasLt* lt_ = nullptr;
  cublasLtHandle_t handle_ = nullptr;
  // Pointers of scales and of the epilogue live in a descriptor, and ranks may share a product: a launch
  // takes one for itself. At least one is here when nobody launches.
  Result<cublasLtMatmulDesc_t> make_desc() const;
  Result<cublasLtMatmulDesc_t> take_desc() const;
  void give_back(cublasLtMatmulDesc_t desc) const;
  mutable std::mutex mutex_;  // guards what follows
  mutable std::vector<cublasLtMatmulDesc_t> descs_;
  cublasLtMatrixLayout_t a_ = nullptr, b_ = nullptr, c_ = nullptr;
  // The algorithms for operands at multiples of 16 bytes, and for operands at any address.
  cublasLtMatmulAlgo_t aligned_{}, unaligned_{};
  bool takes_unaligned_ = false;  // else there is none for operands anywhere, of a product with an epilogue
  bool f64_ = false;
  int64_t workspace_bytes_ = 0;
};

}  // namespace tessera::cuda
