// ScratchMemory: device memory outside any arena, for trying out kernels.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <string_view>

#include "graph/base/text.h"
#include "runtime/backends/cuda/cuda_status.h"

namespace tessera::cuda {

class ScratchMemory {
 public:
  ScratchMemory() = default;
  ScratchMemory(const ScratchMemory&) = delete;
  ScratchMemory& operator=(const ScratchMemory&) = delete;
  ~ScratchMemory() {
    if (at_ != nullptr) (void)cudaFree(at_);
  }
  Status allocate(int64_t bytes, std::string_view why) {
    return from_cuda(cudaMalloc(&at_, static_cast<size_t>(bytes)), format("{} bytes {}", bytes, why));
  }
  char* at(int64_t offset) const { return static_cast<char*>(at_) + offset; }

 private:
  void* at_ = nullptr;
};

}  // namespace tessera::cuda
