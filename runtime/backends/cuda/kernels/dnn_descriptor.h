// One descriptor of cuDNN's graph interface, and its attributes.
#pragma once

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "graph/base/text.h"
#include "runtime/backends/cuda/dnn_library.h"

namespace tessera::cuda {

class DnnDescriptor {
 public:
  // Every use fails until it is created.
  explicit DnnDescriptor(const Dnn& dnn) : dnn_(&dnn) {}
  DnnDescriptor(DnnDescriptor&& other) noexcept
      : dnn_(other.dnn_), descriptor_(std::exchange(other.descriptor_, nullptr)) {}
  DnnDescriptor& operator=(DnnDescriptor&& other) noexcept {
    std::swap(dnn_, other.dnn_);
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }
  ~DnnDescriptor() {
    if (descriptor_ != nullptr) (void)dnn_->destroy_descriptor(descriptor_);
  }

  Status create(cudnnBackendDescriptorType_t type) {
    return dnn_->status(dnn_->create_descriptor(type, &descriptor_), "make a descriptor");
  }
  Status set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t count,
             const void* values) {
    return dnn_->status(dnn_->set_attribute(descriptor_, name, type, count, values),
                        format("attribute {}", static_cast<int32_t>(name)));
  }
  template <class T>
  Status set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, const T& value) {
    return set(name, type, 1, &value);
  }
  Status set(cudnnBackendAttributeName_t name, const std::vector<int64_t>& values) {
    return set(name, CUDNN_TYPE_INT64, static_cast<int64_t>(values.size()), values.data());
  }
  Status set(cudnnBackendAttributeName_t name, const DnnDescriptor& value) {
    return set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, value.descriptor_);
  }
  Status finalize(std::string_view what) { return dnn_->status(dnn_->finalize(descriptor_), what); }

  // Reads at most `most` values and returns how many there are; an attribute not set yet reads as none.
  int64_t get(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t most,
              void* values) const {
    int64_t count = 0;
    const cudnnStatus_t status = dnn_->get_attribute(descriptor_, name, type, most, &count, values);
    return status == CUDNN_STATUS_SUCCESS ? count : 0;
  }
  cudnnBackendDescriptor_t raw() const { return descriptor_; }

 private:
  const Dnn* dnn_;
  cudnnBackendDescriptor_t descriptor_ = nullptr;
};

}  // namespace tessera::cuda
