#include "graph/base/parallel_for.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "graph/base/cancellation_share.h"
#include "graph/base/thread.h"

namespace tessera {

void parallel_for(size_t count, const std::function<void(size_t)>& work) {
  constexpr size_t kMost = 16;
  const size_t used =
      std::min({static_cast<size_t>(std::max(1U, std::thread::hardware_concurrency())), count, kMost});
  std::atomic<size_t> next = 0;
  std::mutex mutex;
  std::exception_ptr error;  // guarded by `mutex`
  const CancelScope* const scope = innermost_cancel_scope();
  const auto run = [&] {
    const SharedCancelScope shared(scope);
    try {
      for (size_t i = next++; i < count; i = next++) work(i);
    } catch (...) {
      next = count;
      const std::lock_guard lock(mutex);
      if (!error) error = std::current_exception();
    }
  };
  {
    std::vector<Thread> others;
    try {
      for (size_t i = 1; i < used; ++i) others.emplace_back(run);
    } catch (...) {  // the system refuses more threads
    }
    run();
  }
  if (error) std::rethrow_exception(error);
}

}  // namespace tessera
