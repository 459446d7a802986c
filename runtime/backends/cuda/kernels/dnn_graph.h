// DnnGraph: cuDNN operations on tensors of four dims, to be computed by one fused kernel.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "graph/base/dtype.h"
#include "runtime/backends/cuda/kernels/dnn_descriptor.h"

namespace tessera::cuda {

struct DnnTensor {
  size_t index;  // among the graph's
};

// Extents and strides, in elements.
struct DnnLayout {
  std::array<int64_t, 4> dims, strides;
};
DnnLayout packed(const std::array<int64_t, 4>& dims);
DnnLayout last_swapped(const DnnLayout& layout);  // the last two dims exchanged

cudnnDataType_t dnn_type(DType dtype);  // f32, f16 or bf16

// Keeps the library's first refusal: later calls do nothing, and `finish` returns it.
class DnnGraph {
 public:
  explicit DnnGraph(const Dnn& dnn) : dnn_(&dnn), graph_(dnn) {}

  // A tensor in device memory at a multiple of 16 bytes, bound by `id` (above 0) at launch.
  DnnTensor operand(int64_t id, cudnnDataType_t type, const DnnLayout& layout);
  // One f32, read from the host's memory at launch.
  DnnTensor scalar(int64_t id);
  // A tensor inside the fused kernel.
  DnnTensor inner(cudnnDataType_t type, const DnnLayout& layout);

  // Operations: each writes its last operand and returns it. Sums are f32.
  DnnTensor multiply(DnnTensor a, DnnTensor b, DnnTensor product);
  DnnTensor map(cudnnPointwiseMode_t mode, DnnTensor x, DnnTensor y);
  DnnTensor map(cudnnPointwiseMode_t mode, DnnTensor x, DnnTensor b, DnnTensor y,
                cudnnDataType_t computed = CUDNN_DATA_FLOAT);
  DnnTensor index(DnnTensor of, int64_t dim, DnnTensor y);
  DnnTensor select(DnnTensor where, DnnTensor x, DnnTensor otherwise, DnnTensor y);
  DnnTensor reduce(cudnnReduceTensorOp_t op, DnnTensor x, DnnTensor y);  // dims of which y has 1
  DnnTensor view(DnnTensor x, DnnTensor y);                              // the same elements, other dims

  // The finished graph, which this object keeps; `handle` is null without a device.
  Result<const DnnDescriptor*> finish(cudnnHandle_t handle);
  const Dnn& dnn() const { return *dnn_; }

 private:
  DnnTensor add_tensor(int64_t id, cudnnDataType_t type, const DnnLayout& layout, bool is_inner,
                       bool is_value);
  DnnTensor add_map(cudnnPointwiseMode_t mode, cudnnDataType_t computed, const int64_t* dim, DnnTensor x,
                    const DnnTensor* b, const DnnTensor* where, DnnTensor y);
  DnnTensor add(DnnDescriptor operation, const char* what, DnnTensor y);
  DnnDescriptor made(cudnnBackendDescriptorType_t type);
  void keep(const Status& status) {
    if (status_.ok()) status_ = status;
  }

  const Dnn* dnn_;
  Status status_;
  int64_t next_id_ = 1000;  // of inner tensors
  std::vector<DnnDescriptor> tensors_, descriptions_, operations_;
  DnnDescriptor graph_;
};

}  // namespace tessera::cuda
