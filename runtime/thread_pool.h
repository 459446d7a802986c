// ThreadPool: the one pool that kernels of all ranks share. The caller of parallel_for takes part, several
// threads may call at once, nothing is pinned, and a call allocates nothing. Callers come first: once they
// alone fill the cores, no worker helps any of them, so that concurrent ranks have one core each. Tasks are
// claimed one by one, by any thread, so a body's result must depend on the task's index alone. Workers poll for
// some 50 us after a job, so that the launches of a program cost no wake-up, and then sleep; they sleep at once
// where callers alone have work for half of the cores, or where the process may run on fewer cores than threads.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

namespace tessera {

class ThreadPool {
 public:
  // `threads` counts the caller; 0 means the size of the cpuset this process may run on. `started(i)` is the first that
  // worker i, from 1, does.
  explicit ThreadPool(int32_t threads = 0, std::function<void(int32_t)> started = {});
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  using Body = void (*)(void* context, int64_t task);
  // Runs body(context, 0..tasks-1) and returns when all are done. The first exception of a body is rethrown
  // here. In a forked child, where no worker exists, the caller runs every task itself.
  void parallel_for(int64_t tasks, Body body, void* context);
  int32_t thread_count() const;

  static int32_t cpuset_size();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tessera
