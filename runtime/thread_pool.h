// ThreadPool: the pool shared by the kernels of all ranks. The caller of parallel_for takes part;
// calls may be concurrent, allocate nothing, and pin nothing. Callers come first: once they fill
// the cores, workers stop helping, so that each concurrent rank has a core. Any thread may claim
// any task, so a body's result must depend on the task's index alone. Workers spin about 50 us
// after a job, so that a program's launches need no wake-up, then sleep; they sleep at once if
// callers fill half of the cores, or if the process may run on fewer cores than threads.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

namespace tessera {

class ThreadPool {
 public:
  // `threads` counts the caller; 0: the size of the process'
  // cpuset. `started(i)` runs first on worker i, from 1.
  explicit ThreadPool(int32_t threads = 0, std::function<void(int32_t)> started = {});
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  using Body = void (*)(void* context, int64_t task);
  // Runs body(context, 0..tasks-1) to the end, and rethrows the first
  // exception. In a forked child, without workers, the caller runs every task.
  void parallel_for(int64_t tasks, Body body, void* context);
  int32_t thread_count() const;

  static int32_t cpuset_size();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tessera
