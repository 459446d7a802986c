// ScopedDevice: makes a device current for a thread, and restores the thread's own.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace tessera::cuda {

class ScopedDevice {
 public:
  explicit ScopedDevice(int32_t ordinal) {
    if (cudaGetDevice(&before_) != cudaSuccess) before_ = ordinal;
    changed_ = before_ != ordinal;
    // Called even where nothing changes: the first call of a thread initializes the device's context.
    (void)cudaSetDevice(ordinal);
  }
  ~ScopedDevice() {
    if (changed_) (void)cudaSetDevice(before_);
  }
  ScopedDevice(const ScopedDevice&) = delete;
  ScopedDevice& operator=(const ScopedDevice&) = delete;

 private:
  int before_ = 0;
  bool changed_ = false;
};

}  // namespace tessera::cuda
