// parallel_for: independent iterations of a loop, on all cores.
#pragma once

#include <cstddef>
#include <functional>

namespace tessera {

// Calls work(0) to work(count - 1), each once, on the calling thread and up to 15 others; returns after
// the last. Rethrows the exception of an iteration after those in flight have ended. All threads heed
// the calling thread's CancelScope. Where the system refuses threads, the existing ones do all of it.
void parallel_for(size_t count, const std::function<void(size_t)>& work);

}  // namespace tessera
