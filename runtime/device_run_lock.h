// DeviceRunLock: runs that share a device run one after another, where their launches may wait on the device
// for launches of other ranks. The ranks of one run issue in orders that agree; two concurrent runs issue in
// the order of their threads. Launches of both, interleaved differently on two devices, may deadlock: for
// room, or in a device queue that streams share. One object a registry; any thread.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <list>
#include <mutex>
#include <span>

#include "runtime/backend_abi.h"

namespace tessera {

class DeviceRunLock {
  struct Claim {
    const tsr_backend_api* api;
    std::span<const int32_t> ordinals;
  };
  using Claims = std::list<Claim>;

 public:
  // Held by one run while it exists.
  class Guard {
   public:
    // Waits for all earlier claims on one of the devices `ordinals` of `api`, which must stay valid; or,
    // after a `wake`, until `stop` is set.
    Guard(DeviceRunLock& lock, const tsr_backend_api& api, std::span<const int32_t> ordinals,
          const std::atomic<bool>& stop);
    ~Guard();
    Guard(const Guard&) = delete;
    Guard& operator=(const Guard&) = delete;

   private:
    DeviceRunLock& lock_;
    Claims::iterator mine_;
  };
  void wake();

 private:
  bool is_next(Claims::iterator mine) const;

  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  Claims claims_;  // held or waiting, in the order of arrival
};

}  // namespace tessera
