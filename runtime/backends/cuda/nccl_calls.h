// Collectives as calls of NCCL.
#pragma once

#include "graph/base/dtype.h"
#include "runtime/backends/cuda/comm_group.h"
#include "runtime/backends/cuda/library.h"

namespace tessera::cuda {

inline int64_t bytes_of(const tsr_abi_collective& what, int64_t elements) {
  return dtype_bytes(static_cast<DType>(what.dtype), elements);
}

// Whether NCCL's collectives can express it: even pieces, each contiguous.
bool nccl_can(const tsr_abi_collective& what);

// Elements that a call names: of all, or of one member's piece.
int64_t nccl_count(const tsr_abi_collective& what);

ncclResult_t call_nccl(const Nccl& nccl, const tsr_abi_collective& what, int64_t count, const void* in,
                       void* out, ncclComm_t comm, cudaStream_t stream);

// Calls each collective once, on memory of its own, and waits. NCCL connects members, and allocates for it,
// when they first call: in the middle of a step a device that stops for that may be one that others wait for.
// If a call fails, the group continues without NCCL.
Status connect_nccl(CommGroup& group, const tsr_abi_comm_use& use);

}  // namespace tessera::cuda
