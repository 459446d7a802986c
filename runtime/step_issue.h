// Preparation of steps: StepResolver resolves instructions to pointers, FusedLaunches
// merges kernels into fewer launches, DeviceTimers records device times.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "graph/base/result.h"
#include "runtime/backend_abi.h"
#include "runtime/rank_memory.h"
#include "runtime/rank_stream.h"

namespace tessera {

// The collective as the backend's struct; points into `what`.
tsr_abi_collective to_abi_collective(const CollectiveInst& what, int32_t members);

// MovedBytes: `bytes` moved from `from` to `to`.
struct MovedBytes {
  const std::byte* from = nullptr;
  int64_t bytes = 0;
  std::byte* to = nullptr;

  void* moved(const void* at) const {
    const auto offset = reinterpret_cast<uintptr_t>(at) - reinterpret_cast<uintptr_t>(from);
    return offset < static_cast<uintptr_t>(bytes) ? to + offset : const_cast<void*>(at);
  }
};

// StepResolver: resolves the addresses, kernels and files of a
// rank's instructions, so that running them needs no lookup.
class StepResolver {
 public:
  // The arguments must outlive it; it must outlive the steps.
  StepResolver(const tsr_backend_api& api, const RankProgram& program,
               const std::vector<tsr_abi_kernel*>& kernels, const RankMemory& memory);
  StepResolver(const StepResolver&) = delete;
  StepResolver& operator=(const StepResolver&) = delete;

  // Fills `step`, except streams and waits, from an instruction; call
  // once for each. kUnsupported for a copy that the backend lacks.
  Status resolve(const Instruction& instruction, Step& step);
  // Updates kernel operands in the moved range.
  void move(const MovedBytes& moved) {
    for (void*& at : pointers_) at = moved.moved(at);
  }

 private:
  Status resolve_copy(const CopyInst& copy, Step& step) const;

  const tsr_backend_api& api_;
  const RankProgram& program_;
  const std::vector<tsr_abi_kernel*>& kernels_;
  const RankMemory& memory_;
  std::vector<void*> pointers_;  // operand lists of all kernels; steps point into it, so it never grows
};

// FusedLaunches: merges consecutive kernels of a stream into fewer launches by the backend
// (kernel_fuse). The updates of a training step, one per parameter, would otherwise cost
// hundreds of launches of a few microseconds. Asynchronous backends hold a session's addresses;
// blocking ones read the operand lists at each launch, since a written shared weight moves.
class FusedLaunches {
 public:
  // Fuses nothing if the backend lacks kernel_fuse.
  FusedLaunches(const tsr_backend_api& api, tsr_abi_device* device) : api_(api), device_(device) {}
  ~FusedLaunches();
  FusedLaunches(const FusedLaunches&) = delete;
  FusedLaunches& operator=(const FusedLaunches&) = delete;

  // Fuses the steps of one entry on one stream. The first step of a fused launch
  // does all the work, the others become Step::Kind::kFused. A step that waits for
  // another stream, or follows a step that is no kernel, begins a new launch: no
  // step runs before its dependencies, and a wait for a member waits for the launch.
  Status fuse(std::span<Step> steps);

  size_t count() const { return kernels_.size(); }

 private:
  Status fuse_run(std::span<Step> kernels);

  const tsr_backend_api& api_;
  tsr_abi_device* device_;
  std::vector<tsr_abi_kernel*> kernels_;
};

// Whether the backend has kernel_fuse.
bool can_fuse(const tsr_backend_api& api);

// DeviceTimers: device times of a rank's steps for traces, by an event before and
// after each, also in captured graphs. For asynchronous backends with timed events.
class DeviceTimers {
 public:
  // Whether the backend has timed events.
  static bool is_supported(const tsr_backend_api& api);

  DeviceTimers(const tsr_backend_api& api, tsr_abi_device* device) : api_(api), device_(device) {}
  ~DeviceTimers();
  DeviceTimers(const DeviceTimers&) = delete;
  DeviceTimers& operator=(const DeviceTimers&) = delete;

  // Adds two events to the step, if it is issued to a stream.
  Status add(Step& step);
  // Marks the begin of a run on `stream`, which is idle, so
  // that the device passes the mark now. Never part of a graph.
  Status begin(tsr_abi_stream* stream);
  // Adds a record for each finished step of entry `entry` to its
  // stream, in nanoseconds since `origin_ns` of the host's clock.
  Status read(int32_t entry, const std::vector<std::pair<RankStream*, int32_t>>& steps, int64_t origin_ns);

 private:
  const tsr_backend_api& api_;
  tsr_abi_device* device_;
  std::vector<tsr_abi_event*> events_;
  tsr_abi_event* run_began_ = nullptr;  // at `run_began_ns_` of the host
  int64_t run_began_ns_ = 0;
};

// Nanoseconds of the host's steady clock.
int64_t host_now_ns();

}  // namespace tessera
