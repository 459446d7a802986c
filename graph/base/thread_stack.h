// The stack of the current thread, where it is a Thread of this library (thread.h).
#pragma once

#include <cstddef>
#include <optional>

namespace tessera {

// Bytes of the stack in use, of kThreadStackBytes; nullopt on other threads, whose stacks have any size.
std::optional<size_t> used_stack_bytes();

}  // namespace tessera
