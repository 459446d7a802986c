#include "runtime/backends/cuda/nccl_calls.h"

#include <algorithm>
#include <functional>
#include <vector>

#include "graph/base/text.h"
#include "runtime/backend_collective.h"
#include "runtime/backends/cuda/cuda_status.h"
#include "runtime/backends/cuda/scoped_device.h"

namespace tessera::cuda {

namespace {

ncclDataType_t nccl_type(int32_t dtype) {
  switch (static_cast<DType>(dtype)) {
    case DType::kF32: return ncclFloat32;
    case DType::kF64: return ncclFloat64;
    case DType::kF16: return ncclFloat16;
    case DType::kBF16: return ncclBfloat16;
    case DType::kI32: return ncclInt32;
    case DType::kI64: return ncclInt64;
    default: return ncclInt8;
  }
}

bool names_piece(const tsr_abi_collective& what) {
  return what.kind == kAllGather || what.kind == kReduceScatter;
}

// A type without reductions is sent as bytes.
int64_t element_bytes(const tsr_abi_collective& what) {
  return nccl_type(what.dtype) == ncclInt8 ? 1 : bytes_of(what, 1);
}

// Streams and memory of all members, for calls before any step.
class FirstCalls {
 public:
  explicit FirstCalls(const CommGroup& group) : group_(group), own_(static_cast<size_t>(group.members())) {}
  ~FirstCalls() {
    for (int32_t i = 0; i < group_.members(); ++i) {
      const ScopedDevice current(group_.ordinal(i));
      if (own(i).stream != nullptr) (void)cudaStreamDestroy(own(i).stream);
      if (own(i).memory != nullptr) (void)cudaFree(own(i).memory);
    }
  }
  FirstCalls(const FirstCalls&) = delete;
  FirstCalls& operator=(const FirstCalls&) = delete;

  Status prepare(int64_t bytes) {
    for (int32_t i = 0; i < group_.members(); ++i) {
      const ScopedDevice current(group_.ordinal(i));
      TSR_RETURN_IF_ERROR(
          from_cuda(cudaStreamCreateWithFlags(&own(i).stream, cudaStreamNonBlocking), "a stream"));
      TSR_RETURN_IF_ERROR(from_cuda(cudaMalloc(&own(i).memory, static_cast<size_t>(bytes)),
                                    format("{} to connect with", bytes_text(bytes))));
      TSR_RETURN_IF_ERROR(from_cuda(
          cudaMemsetAsync(own(i).memory, 0, static_cast<size_t>(bytes), own(i).stream), "clearing memory"));
    }
    return {};
  }
  // In place, by all members at once.
  ncclResult_t call(const tsr_abi_collective& what, int64_t count) {
    const Nccl& nccl = *group_.nccl();
    ncclResult_t result = nccl.group_start();
    if (result != ncclSuccess) return result;
    for (int32_t i = 0; i < group_.members() && result == ncclSuccess; ++i) {
      const ScopedDevice current(group_.ordinal(i));
      auto* const whole = static_cast<char*>(own(i).memory);
      char* const piece = whole + i * count * element_bytes(what);
      result = call_nccl(nccl, what, count, what.kind == kAllGather ? piece : whole,
                         what.kind == kReduceScatter ? piece : whole, group_.nccl_comm(i), own(i).stream);
    }
    const ncclResult_t ended = nccl.group_end();
    return result != ncclSuccess ? result : ended;
  }
  Status wait() {
    for (int32_t i = 0; i < group_.members(); ++i)
      TSR_RETURN_IF_ERROR(from_cuda(cudaStreamSynchronize(own(i).stream), "connecting"));
    return {};
  }

 private:
  struct Own {
    cudaStream_t stream = nullptr;
    void* memory = nullptr;
  };
  Own& own(int32_t i) { return own_[static_cast<size_t>(i)]; }
  const CommGroup& group_;
  std::vector<Own> own_;
};

}  // namespace

bool nccl_can(const tsr_abi_collective& what) {
  if (info(static_cast<DType>(what.dtype)).block_elements != 1) return false;
  switch (what.kind) {
    case kAllReduce:
    case kBroadcast: return what.elements > 0;
    case kAllGather:
    case kReduceScatter: {
      const int64_t* end = what.extents + what.member_count;
      return what.outer == 1 && what.elements > 0 &&
             std::adjacent_find(what.extents, end, std::not_equal_to<>()) == end;
    }
    default: return false;
  }
}

int64_t nccl_count(const tsr_abi_collective& what) {
  const int64_t elements = names_piece(what) ? what.extents[0] * what.inner : what.elements;
  return bytes_of(what, elements) / element_bytes(what);
}

ncclResult_t call_nccl(const Nccl& nccl, const tsr_abi_collective& what, int64_t count, const void* in,
                       void* out, ncclComm_t comm, cudaStream_t stream) {
  const ncclDataType_t type = nccl_type(what.dtype);
  const ncclRedOp_t op = what.reduce == 0 ? ncclSum : ncclMax;
  const auto elements = static_cast<size_t>(count);
  switch (what.kind) {
    case kAllReduce: return nccl.all_reduce(in, out, elements, type, op, comm, stream);
    case kAllGather: return nccl.all_gather(in, out, elements, type, comm, stream);
    case kReduceScatter: return nccl.reduce_scatter(in, out, elements, type, op, comm, stream);
    case kBroadcast: return nccl.broadcast(in, out, elements, type, what.root, comm, stream);
    default: return ncclSuccess;
  }
}

// The connections of a call depend on its kind and size; beyond some size on the kind alone.
Status connect_nccl(CommGroup& group, const tsr_abi_comm_use& use) {
  constexpr int64_t kMostBytes = int64_t{32} << 20;
  FirstCalls calls(group);
  TSR_RETURN_IF_ERROR(calls.prepare(kMostBytes));
  for (int32_t i = 0; i < use.collective_count; ++i) {
    const tsr_abi_collective& what = use.collectives[i];
    if (!nccl_can(what)) continue;
    const int64_t most = kMostBytes / element_bytes(what) / (names_piece(what) ? group.members() : 1);
    const ncclResult_t result = calls.call(what, std::min(nccl_count(what), most));
    if (result != ncclSuccess) {
      group.give_up_nccl("a first collective", result);
      return {};
    }
  }
  return calls.wait();
}

}  // namespace tessera::cuda
