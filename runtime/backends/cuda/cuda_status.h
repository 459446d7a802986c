// Errors of the CUDA runtime as Status: the call, CUDA's own name and text.
#pragma once

#include <cuda_runtime_api.h>

#include <string_view>

#include "graph/base/status.h"
#include "graph/base/text.h"

namespace tessera::cuda {

// Clears the runtime's error once it is a Status: the runtime keeps it (cudaGetLastError), and the next
// launch would report it. An error that broke the context comes back with every call.
inline Status from_cuda(cudaError_t error, std::string_view what) {
  if (error == cudaSuccess) return {};
  (void)cudaGetLastError();
  const StatusCode code = error == cudaErrorMemoryAllocation ? StatusCode::kOutOfMemory
                          : error == cudaErrorInvalidDevice  ? StatusCode::kNotFound
                          : error == cudaErrorNotSupported   ? StatusCode::kUnsupported
                          : error == cudaErrorInvalidValue   ? StatusCode::kInvalidArgument
                                                             : StatusCode::kInternal;
  return Status(code, format("{}: {} ({})", what, cudaGetErrorName(error), cudaGetErrorString(error)));
}

}  // namespace tessera::cuda
