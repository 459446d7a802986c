// Communicator between ranks of one process, each with a stream. Members synchronize on the host when they
// issue: they publish their buffers and an event of their stream, wait at a barrier, and let their stream
// wait for the events of all. Each does its own share straight from the others' memory, records an event,
// waits at a second barrier and lets its stream wait for those events.
// Nothing on a device waits for work that is not issued yet, so any number of ranks may share a GPU. Where
// every member has a GPU of its own, NCCL runs what it can express (even, contiguous pieces); then members
// compare descriptions on the host the first time only. The rest goes through peer memory, or through pinned
// host memory where GPUs cannot reach each other's.
//
// Results of the shared path are the same for any timing: every element is reduced by one member, in group
// order. After an abort, or a mismatch between members, the group stays unusable.
#pragma once

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <memory>
#include <string_view>
#include <vector>

#include "graph/base/result.h"
#include "runtime/backend_abi.h"
#include "runtime/backends/cuda/agreed_collectives.h"

namespace tessera::cuda {

class CommGroup;

// One member of a group; its owner's thread calls, except for `abort`.
class Communicator {
 public:
  // Creates one Communicator per member, on the devices `ordinals`; they keep the group alive together.
  // Memory is prepared for what `use` announces, so that no call allocates; with null, memory is allocated at
  // first use.
  static Result<std::vector<std::unique_ptr<Communicator>>> create(const std::vector<int32_t>& ordinals,
                                                                   const tsr_abi_comm_use* use);
  ~Communicator();

  Status collective(cudaStream_t stream, const tsr_abi_collective& what, const void* in, void* out);
  // `send` copies the bytes and returns; `recv` returns when its send was issued. The streams order the
  // bytes.
  Status send(cudaStream_t stream, int32_t peer, const void* in, int64_t bytes);
  Status receive(cudaStream_t stream, int32_t peer, void* out, int64_t bytes);
  // Sends and receives between the two are posted together and waited for at the end.
  Status begin_exchange();
  Status end_exchange(cudaStream_t stream);
  void abort();
  const tsr_abi_comm_counters& counters() const { return counters_; }
  int32_t ordinal() const;

 private:
  Communicator(std::shared_ptr<CommGroup> group, int32_t position);
  Status exchange(cudaStream_t stream, const tsr_abi_collective& what);
  Status stage(cudaStream_t stream, const tsr_abi_collective& what);
  Status through_nccl(cudaStream_t stream, const tsr_abi_collective& what, const void* in, void* out);
  Status check_peer(int32_t peer, int64_t bytes, std::string_view what) const;
  Status post(cudaStream_t stream, int32_t peer, const void* in, int64_t bytes);
  Status take(cudaStream_t stream, int32_t peer, void* out, int64_t bytes);

  // One send or receive of an exchange.
  struct Transfer {
    bool is_send;
    int32_t peer;
    const void* in;
    void* out;
    int64_t bytes;
  };

  std::shared_ptr<CommGroup> group_;  // shared by the ends, which may be destroyed in any order
  int32_t position_;
  tsr_abi_comm_counters counters_{};
  AgreedCollectives agreed_;  // those that go to NCCL
  bool in_exchange_ = false;
  std::vector<Transfer> transfers_;
};

}  // namespace tessera::cuda
