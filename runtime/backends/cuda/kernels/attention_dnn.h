// Attention through cuDNN, shared by its kernels and their check.
#pragma once

#include <memory>

#include "runtime/backends/cuda/cuda_kernel.h"
#include "runtime/backends/cuda/kernels/attention_dnn_graph.h"
#include "runtime/backends/cuda/kernels/dnn_plan.h"

namespace tessera::cuda {

// AttentionDnn: one shape of attention on the current device, with the op's operands and results. Compiled
// before the first launch; shared by all kernels of the shape.
class AttentionDnn {
 public:
  virtual ~AttentionDnn() = default;
  virtual Status compile() = 0;
  virtual Status launch(const LaunchArgs& args, float scale) const = 0;
  virtual int64_t workspace_bytes() const = 0;  // the workspace may have any alignment
  virtual const DnnEngine& engine() const = 0;
};
// Uses the engine proposed by the library, or the `wanted` one. kUnsupported without one.
Result<std::shared_ptr<AttentionDnn>> attention_dnn(const DnnAttention& shape, const DnnEngine* wanted);

// Checks on a small problem like `shape` that an engine agrees with our own kernels and is bitwise
// reproducible. Runs once per process and problem, in its own memory; kUnsupported with the first difference,
// which is also logged.
Status check_attention_dnn(const DnnAttention& shape, const DnnEngine& engine);

}  // namespace tessera::cuda
