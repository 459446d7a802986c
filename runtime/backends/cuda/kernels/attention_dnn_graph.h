// Attention and its gradient as graphs of cuDNN's operations, in the patterns that its fused kernels match.
#pragma once

#include <compare>

#include "runtime/backends/cuda/kernels/dnn_graph.h"

namespace tessera::cuda {

struct DnnAttention {
  DType dtype;  // f16 or bf16
  int64_t B, T, H, S, KV, D;
  bool causal;  // query t sees keys 0..t
  bool is_gradient;

  auto operator<=>(const DnnAttention&) const = default;
};

// Tensors bound at launch. Layouts are the op's (q [B, T, H, D], k, v [B, S, KV, D]), except two f32 tensors
// packed as [B, H, T]: the log of the sum, and the sum of dout out.
enum DnnAttentionId : int64_t {
  kDnnQ = 1,
  kDnnK,
  kDnnV,
  kDnnOut,
  kDnnLse,
  kDnnDout,
  kDnnDelta,
  kDnnDq,
  kDnnDk,
  kDnnDv,
  // Scalars.
  kDnnScale,
  kDnnMasked,  // minus infinity
  kDnnOne,
};

// q, k, v, scale (and masked) -> out, lse; or dout, q, k, v, out, lse, scale, one (and masked) -> dq, dk, dv
// and delta, which is workspace.
DnnGraph attention_dnn_graph(const Dnn& dnn, const DnnAttention& shape);

}  // namespace tessera::cuda
