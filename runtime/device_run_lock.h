// DeviceRunLock: serializes runs that share a device and whose launches may wait
// there for other ranks' launches. The ranks of one run issue in consistent orders,
// but two concurrent runs may interleave differently on two devices and deadlock,
// for room or in a shared device queue. One object per registry; any thread.
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
  // Guard: held by one run during its lifetime.
  class Guard {
   public:
    // Waits for all earlier guards of the devices `ordinals` of `api`,
    // which must stay valid; or, after `wake`, until `stop` is set.
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

  std::mutex mutex_;  // guards the members below
  std::condition_variable changed_;
  Claims claims_;  // held or waiting, in the order of arrival
};

}  // namespace tessera
