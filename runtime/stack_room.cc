#include "runtime/stack_room.h"

#include <pthread.h>

namespace tessera {

namespace {

constexpr uintptr_t kKernelStackBytes = uintptr_t{1} << 20;  // twice the largest frame of a kernel

// Where the calling thread's stack ends; 0 where the system does not say.
uintptr_t lowest_address() {
  pthread_attr_t attributes;
  if (pthread_getattr_np(pthread_self(), &attributes) != 0) return 0;
  void* lowest = nullptr;
  size_t bytes = 0;
  const bool known = pthread_attr_getstack(&attributes, &lowest, &bytes) == 0;
  pthread_attr_destroy(&attributes);
  return known ? reinterpret_cast<uintptr_t>(lowest) : 0;
}

}  // namespace

bool has_stack_for_kernels() {
  thread_local const uintptr_t lowest = lowest_address();
  return reinterpret_cast<uintptr_t>(__builtin_frame_address(0)) - lowest >= kKernelStackBytes;
}

}  // namespace tessera
