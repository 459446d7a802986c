// DecodeStep: the effect of a kernel as plain data, for the kernels that decoding a few rows consists of. A
// matrix of such a step is read in a microsecond or two, as long as a launch takes. So all kernels between
// two matrices become part of the launch that reads one (kernels/gemv_plan.h).
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <variant>

#include "graph/base/dtype.h"
#include "runtime/backends/cuda/cuda_kernel.h"
#include "runtime/backends/cuda/kernels/matmul_activation.h"

namespace tessera::cuda {

struct GemvPlan;

// x [rows, cols], w [cols], with is_layer_norm b [cols] -> y, (mean [rows],) rstd [rows]
struct NormStep {
  bool is_layer_norm;
  int64_t rows, cols;
  double eps;
};
// x [M, K], w [N, K], bias [N], addend [M, N] -> y [M, N], pre [M, N]
struct ProductStep {
  int64_t M, N, K;
  DType weight;
  int64_t row_bytes;
  int bias = -1, addend = -1;  // the operands, -1 for none; y may share memory with the addend
  bool has_pre = false;
  int operands;
  MatmulActivation activation = MatmulActivation::kNone;
  std::unique_ptr<Kernel> (*kernel)(const GemvPlan& plan);  // of the types of this product
};
// x [rows, H, D], positions [rows] -> y: rope
struct RopeStep {
  int64_t rows, H, D;
  double log_theta, sign;
  bool is_interleaved;
};
// pages [slots, cols], new [rows, cols], slot [rows] -> pages
struct PageStep {
  int64_t slots, rows, cols;
};
// Element by element, one or two operands -> y.
enum class MapKind : int32_t { kAdd, kSwiglu, kGeluTanh, kGeluExact, kRelu, kSilu };
struct MapStep {
  MapKind kind;
  int64_t count;
};

struct DecodeStep {
  DType dtype;  // of all operands except statistics, indices and a matmul's weight
  std::variant<NormStep, ProductStep, RopeStep, PageStep, MapStep> what;
};

// Wraps `kernel` and records the step that it performs.
std::unique_ptr<Kernel> as_decode_step(std::unique_ptr<Kernel> kernel, const DecodeStep& step);
inline PreparedKernel as_decode_step(PreparedKernel prepared, const DecodeStep& step) {
  prepared.kernel = as_decode_step(std::move(prepared.kernel), step);
  return prepared;
}

}  // namespace tessera::cuda
