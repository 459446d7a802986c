#include "runtime/backends/cuda/kernels/dnn_graph.h"

#include <utility>

namespace tessera::cuda {

DnnLayout packed(const std::array<int64_t, 4>& dims) {
  return {dims, {dims[1] * dims[2] * dims[3], dims[2] * dims[3], dims[3], 1}};
}

DnnLayout last_swapped(const DnnLayout& layout) {
  DnnLayout swapped = layout;
  std::swap(swapped.dims[2], swapped.dims[3]);
  std::swap(swapped.strides[2], swapped.strides[3]);
  return swapped;
}

cudnnDataType_t dnn_type(DType dtype) {
  return dtype == DType::kF16    ? CUDNN_DATA_HALF
         : dtype == DType::kBF16 ? CUDNN_DATA_BFLOAT16
                                 : CUDNN_DATA_FLOAT;
}

DnnDescriptor DnnGraph::made(cudnnBackendDescriptorType_t type) {
  DnnDescriptor descriptor(*dnn_);
  if (status_.ok()) keep(descriptor.create(type));
  return descriptor;
}

DnnTensor DnnGraph::add_tensor(int64_t id, cudnnDataType_t type, const DnnLayout& layout, bool is_inner,
                               bool is_value) {
  DnnDescriptor tensor = made(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  const auto set = [&](cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t kind,
                       const auto& value) {
    if (status_.ok()) keep(tensor.set(name, kind, value));
  };
  set(CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, id);
  set(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, type);
  set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, int64_t{16});
  if (status_.ok()) keep(tensor.set(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, layout.dims.data()));
  if (status_.ok()) keep(tensor.set(CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, layout.strides.data()));
  if (is_inner) set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, true);
  if (is_value) set(CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, true);
  if (status_.ok()) keep(tensor.finalize("finish a tensor"));
  tensors_.push_back(std::move(tensor));
  return {tensors_.size() - 1};
}

DnnTensor DnnGraph::operand(int64_t id, cudnnDataType_t type, const DnnLayout& layout) {
  return add_tensor(id, type, layout, false, false);
}
DnnTensor DnnGraph::scalar(int64_t id) {
  return add_tensor(id, CUDNN_DATA_FLOAT, packed({1, 1, 1, 1}), false, true);
}
DnnTensor DnnGraph::inner(cudnnDataType_t type, const DnnLayout& layout) {
  return add_tensor(next_id_++, type, layout, true, false);
}

DnnTensor DnnGraph::add(DnnDescriptor operation, const char* what, DnnTensor y) {
  if (status_.ok()) keep(operation.finalize(what));
  operations_.push_back(std::move(operation));
  return y;
}

DnnTensor DnnGraph::multiply(DnnTensor a, DnnTensor b, DnnTensor product) {
  DnnDescriptor description = made(CUDNN_BACKEND_MATMUL_DESCRIPTOR);
  if (status_.ok())
    keep(description.set(CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT));
  if (status_.ok()) keep(description.finalize("describe a product"));
  DnnDescriptor operation = made(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
  const auto set = [&](cudnnBackendAttributeName_t name, const DnnDescriptor& value) {
    if (status_.ok()) keep(operation.set(name, value));
  };
  set(CUDNN_ATTR_OPERATION_MATMUL_DESC, description);
  set(CUDNN_ATTR_OPERATION_MATMUL_ADESC, tensors_[a.index]);
  set(CUDNN_ATTR_OPERATION_MATMUL_BDESC, tensors_[b.index]);
  set(CUDNN_ATTR_OPERATION_MATMUL_CDESC, tensors_[product.index]);
  descriptions_.push_back(std::move(description));
  return add(std::move(operation), "add a product", product);
}

DnnTensor DnnGraph::add_map(cudnnPointwiseMode_t mode, cudnnDataType_t computed, const int64_t* dim,
                            DnnTensor x, const DnnTensor* b, const DnnTensor* where, DnnTensor y) {
  DnnDescriptor description = made(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
  if (status_.ok()) keep(description.set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, mode));
  if (status_.ok()) keep(description.set(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, computed));
  if (status_.ok() && dim != nullptr)
    keep(description.set(CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, *dim));
  if (status_.ok()) keep(description.finalize("describe a function of elements"));
  DnnDescriptor operation = made(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
  const auto set = [&](cudnnBackendAttributeName_t name, const DnnDescriptor& value) {
    if (status_.ok()) keep(operation.set(name, value));
  };
  set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, description);
  set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, tensors_[x.index]);
  if (b != nullptr) set(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, tensors_[b->index]);
  if (where != nullptr) set(CUDNN_ATTR_OPERATION_POINTWISE_TDESC, tensors_[where->index]);
  set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, tensors_[y.index]);
  descriptions_.push_back(std::move(description));
  return add(std::move(operation), "add a function of elements", y);
}

DnnTensor DnnGraph::map(cudnnPointwiseMode_t mode, DnnTensor x, DnnTensor y) {
  return add_map(mode, CUDNN_DATA_FLOAT, nullptr, x, nullptr, nullptr, y);
}
DnnTensor DnnGraph::map(cudnnPointwiseMode_t mode, DnnTensor x, DnnTensor b, DnnTensor y,
                        cudnnDataType_t computed) {
  return add_map(mode, computed, nullptr, x, &b, nullptr, y);
}
DnnTensor DnnGraph::index(DnnTensor of, int64_t dim, DnnTensor y) {
  return add_map(CUDNN_POINTWISE_GEN_INDEX, CUDNN_DATA_INT32, &dim, of, nullptr, nullptr, y);
}
DnnTensor DnnGraph::select(DnnTensor where, DnnTensor x, DnnTensor otherwise, DnnTensor y) {
  return add_map(CUDNN_POINTWISE_BINARY_SELECT, CUDNN_DATA_FLOAT, nullptr, x, &otherwise, &where, y);
}

DnnTensor DnnGraph::reduce(cudnnReduceTensorOp_t op, DnnTensor x, DnnTensor y) {
  DnnDescriptor description = made(CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
  if (status_.ok())
    keep(description.set(CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, op));
  if (status_.ok())
    keep(description.set(CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT));
  if (status_.ok()) keep(description.finalize("describe a reduction"));
  DnnDescriptor operation = made(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
  const auto set = [&](cudnnBackendAttributeName_t name, const DnnDescriptor& value) {
    if (status_.ok()) keep(operation.set(name, value));
  };
  set(CUDNN_ATTR_OPERATION_REDUCTION_DESC, description);
  set(CUDNN_ATTR_OPERATION_REDUCTION_XDESC, tensors_[x.index]);
  set(CUDNN_ATTR_OPERATION_REDUCTION_YDESC, tensors_[y.index]);
  descriptions_.push_back(std::move(description));
  return add(std::move(operation), "add a reduction", y);
}

DnnTensor DnnGraph::view(DnnTensor x, DnnTensor y) {
  DnnDescriptor operation = made(CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
  if (status_.ok()) keep(operation.set(CUDNN_ATTR_OPERATION_RESHAPE_XDESC, tensors_[x.index]));
  if (status_.ok()) keep(operation.set(CUDNN_ATTR_OPERATION_RESHAPE_YDESC, tensors_[y.index]));
  return add(std::move(operation), "add a view", y);
}

Result<const DnnDescriptor*> DnnGraph::finish(cudnnHandle_t handle) {
  TSR_RETURN_IF_ERROR(status_);
  TSR_RETURN_IF_ERROR(graph_.create(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR));
  if (handle != nullptr)
    TSR_RETURN_IF_ERROR(graph_.set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, handle));
  std::vector<cudnnBackendDescriptor_t> operations;
  for (const DnnDescriptor& operation : operations_) operations.push_back(operation.raw());
  TSR_RETURN_IF_ERROR(graph_.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                 static_cast<int64_t>(operations.size()), operations.data()));
  TSR_RETURN_IF_ERROR(graph_.finalize("put the graph together"));
  return &graph_;
}

}  // namespace tessera::cuda
