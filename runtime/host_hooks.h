// HostHooks: functions of the host program that replace or observe the library's own (tsr_hooks).
#pragma once

#include <cstddef>
#include <cstdint>

namespace tessera {

struct HostHooks {
  void* (*allocate)(void* context, size_t bytes, size_t alignment) = nullptr;
  void (*deallocate)(void* context, void* memory, size_t bytes) = nullptr;
  void (*thread_started)(void* context, const char* role, int32_t number) = nullptr;
  void (*release)(void* context) = nullptr;
  void* context = nullptr;

  void started(const char* role, int32_t number) const {
    if (thread_started != nullptr) thread_started(context, role, number);
  }
};

// HeldHooks: owns hooks until nothing can call them.
class HeldHooks {
 public:
  explicit HeldHooks(const HostHooks& hooks) : hooks_(hooks) {}
  ~HeldHooks() {
    if (hooks_.release != nullptr) hooks_.release(hooks_.context);
  }
  HeldHooks(const HeldHooks&) = delete;
  HeldHooks& operator=(const HeldHooks&) = delete;
  const HostHooks& get() const { return hooks_; }
  void hand_over() { hooks_.release = nullptr; }  // the receiver releases them

 private:
  HostHooks hooks_;
};

}  // namespace tessera
