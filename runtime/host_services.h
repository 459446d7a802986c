// HostServices: functions of the host for backends (errors, log,
// thread pool, scratch), and the conversion of their errors.
#pragma once

#include "graph/base/status.h"
#include "runtime/backend_abi.h"
#include "runtime/backend_registry.h"
#include "runtime/host_hooks.h"
#include "runtime/scratch_blocks.h"
#include "runtime/thread_pool.h"

namespace tessera {

class HostServices {
 public:
  HostServices(int32_t threads, void (*log)(void*, int32_t, const char*), void* log_context,
               const HostHooks& hooks);
  HostServices(const HostServices&) = delete;
  HostServices& operator=(const HostServices&) = delete;

  const tsr_host_api& api() const { return api_; }
  ThreadPool& pool() { return pool_; }
  void log(int32_t level, const char* message) const {
    if (log_ != nullptr) log_(log_context_, level, message);
  }

 private:
  HeldHooks hooks_;  // first: the others call them
  ThreadPool pool_;
  ScratchBlocks scratch_;
  void (*log_)(void*, int32_t, const char*);
  void* log_context_;
  tsr_host_api api_{};
};

// Converts a backend's error and frees it; null is success.
Status take_error(tsr_abi_error* error);

// Whether the backend sets `flag`, one of TSR_BACKEND_*.
bool has_flag(const tsr_backend_api& api, uint32_t flag);

}  // namespace tessera
