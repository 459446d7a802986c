// What a launch costs that threads share: parallel_for of as many equal tasks as this process has cores, one launch
// right behind the other as a program issues them, against one task by itself. The difference is the launch.
#include <benchmark/benchmark.h>

#include <cstdint>

#include "runtime/thread_pool.h"

namespace {

// Some 1.5 us: a chain of multiply-adds.
void work(void*, int64_t task) {
  double x = 1.0 + static_cast<double>(task);
  for (int i = 0; i < 1000; ++i) x = x * 0.999 + 1e-3;
  benchmark::DoNotOptimize(x);
}

void task(benchmark::State& state) {
  for (auto _ : state) work(nullptr, 0);
}
BENCHMARK(task)->UseRealTime();

void launch(benchmark::State& state) {
  tessera::ThreadPool pool;
  for (auto _ : state) pool.parallel_for(pool.thread_count(), work, nullptr);
}
BENCHMARK(launch)->UseRealTime();

}  // namespace

BENCHMARK_MAIN();
