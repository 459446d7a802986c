// DeviceTimers: when the device was at the steps of a rank, for traces: an event before each step and one
// after it, which graphs of captured steps record too. For backends that tell times and do not block.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "graph/base/result.h"
#include "runtime/backend_abi.h"
#include "runtime/rank_stream.h"

namespace tessera {

class DeviceTimers {
 public:
  // The backend has what this takes.
  static bool are_there(const tsr_backend_api& api);

  DeviceTimers(const tsr_backend_api& api, tsr_abi_device* device) : api_(api), device_(device) {}
  ~DeviceTimers();
  DeviceTimers(const DeviceTimers&) = delete;
  DeviceTimers& operator=(const DeviceTimers&) = delete;

  // Gives the step its two events, where it is issued to a stream.
  Status add(Step& step);
  // A run begins. `stream` is idle, so that the device passes this now; it is never part of a graph.
  Status begin(tsr_abi_stream* stream);
  // Of entry number `entry`, whose steps are these and are over: one record a step to its stream, in
  // nanoseconds since `origin_ns` of the host's clock.
  Status read(int32_t entry, const std::vector<std::pair<RankStream*, int32_t>>& steps, int64_t origin_ns);

 private:
  const tsr_backend_api& api_;
  tsr_abi_device* device_;
  std::vector<tsr_abi_event*> events_;
  tsr_abi_event* run_began_ = nullptr;  // at `run_began_ns_` of the host
  int64_t run_began_ns_ = 0;
};

// Of the host's steady clock.
int64_t host_now_ns();

}  // namespace tessera
