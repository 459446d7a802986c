// parallel_for: pieces of work that do not depend on each other, on as many threads as there are.
#pragma once

#include <cstddef>
#include <functional>

namespace tessera {

// work(0) to work(count - 1), each once, on the calling thread and others, 16 at most; returns when all are through. What work throws is
// thrown here, when those under way are through. All threads heed the calling thread's CancelScope. Where the system refuses threads, those
// that there are do all of it.
void parallel_for(size_t count, const std::function<void(size_t)>& work);

}  // namespace tessera
