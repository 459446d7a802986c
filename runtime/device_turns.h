// DeviceTurns: runs that have a device in common take turns, where what they launch may wait on the device
// for what another rank launches. The ranks of one run issue in orders that agree; two runs beside each other
// issue in whatever order their threads come to it. What one of them launches in front of the other here, and
// behind it there, may wait for ever: for room, or in a queue of the device that streams share. Of a
// registry, any thread.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <list>
#include <mutex>
#include <span>

#include "runtime/backend_abi.h"

namespace tessera {

class DeviceTurns {
  struct Claim {
    const tsr_backend_api* api;
    std::span<const int32_t> ordinals;
  };
  using Claims = std::list<Claim>;

 public:
  // Of one run, as long as it lives.
  class Turn {
   public:
    // Waits for all that came before and have one of the devices `ordinals` of `api`, which stay where they
    // are; or, after a `wake`, until `stop` holds.
    Turn(DeviceTurns& turns, const tsr_backend_api& api, std::span<const int32_t> ordinals,
         const std::atomic<bool>& stop);
    ~Turn();
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

   private:
    DeviceTurns& turns_;
    Claims::iterator mine_;
  };
  void wake();

 private:
  bool is_next(Claims::iterator mine) const;

  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  Claims claims_;  // in the order of coming: of those that have a turn or wait for one
};

}  // namespace tessera
