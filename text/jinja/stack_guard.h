// StackGuard: says before recursion overflows the stack of a Thread of this library, whatever frames a compiler makes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "graph/base/thread.h"

namespace tessera::jinja {

// Made by the function that the thread runs.
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
