// Attention through cuDNN: what its kernels and their check share.
#pragma once

#include <memory>

#include "runtime/backends/cuda/cuda_kernel.h"
#include "runtime/backends/cuda/kernels/attention_dnn_graph.h"
#include "runtime/backends/cuda/kernels/dnn_plan.h"

namespace tessera::cuda {

// Operands and results as the op has them, on the current device. Compiled before the first launch; kept by
// every kernel of the shape.
class AttentionDnn {
 public:
  virtual ~AttentionDnn() = default;
  virtual Status compile() = 0;
  virtual Status launch(const LaunchArgs& args, float scale) const = 0;
  virtual int64_t workspace_bytes() const = 0;  // of any alignment
  virtual const DnnEngine& engine() const = 0;
};
// By the engine that the library proposes, or the `wanted` one. kUnsupported where there is none.
Result<std::shared_ptr<AttentionDnn>> attention_dnn(const DnnAttention& shape, const DnnEngine* wanted);

// Whether an engine does on a small problem of the kind of `shape` what the own kernels do, and twice leaves
// the same bits. Answered by running them once a process and kind, on memory of its own; kUnsupported with
// the first difference, which also goes to the log.
Status check_attention_dnn(const DnnAttention& shape, const DnnEngine& engine);

}  // namespace tessera::cuda
