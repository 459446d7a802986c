// StackGuard: detects recursion before it overflows a library Thread's stack, whatever the frame sizes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "graph/base/thread.h"

namespace tessera::jinja {

// Created by the thread's function.
class StackGuard {
 public:
  StackGuard() : top_(address()) {}
  bool is_exhausted() const { return top_ - address() > kThreadStackBytes - kMargin; }

 private:
  static constexpr size_t kMargin = size_t{192} << 10;
  static uintptr_t address() { return reinterpret_cast<uintptr_t>(__builtin_frame_address(0)); }
  const uintptr_t top_;
};

}  // namespace tessera::jinja
