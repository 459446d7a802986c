#include "runtime/thread_pool.h"

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <stdexcept>
#include <thread>
#include <vector>

namespace tessera {
namespace {

template <class Body>
void run(ThreadPool& pool, int64_t tasks, Body body) {
  pool.parallel_for(
      tasks, [](void* context, int64_t task) { (*static_cast<Body*>(context))(task); }, &body);
}

TEST_CASE("every_task_runs_exactly_once") {
  for (const int32_t threads : {1, 2, 3, 8}) {
    ThreadPool pool(threads);
    CHECK(pool.thread_count() == threads);
    for (const int64_t tasks : {0, 1, 2, 7, 1000}) {
      std::vector<std::atomic<int>> runs(static_cast<size_t>(tasks));
      run(pool, tasks, [&](int64_t task) { runs[static_cast<size_t>(task)]++; });
      for (const auto& count : runs) CHECK(count == 1);
    }
  }
}

TEST_CASE("several_callers_share_the_pool") {
  ThreadPool pool(3);
  std::vector<std::thread> callers;
  std::atomic<int64_t> sum{0};
  for (int caller = 0; caller < 5; ++caller)
    callers.emplace_back([&] {
      for (int round = 0; round < 200; ++round) run(pool, 16, [&](int64_t task) { sum += task; });
    });
  for (std::thread& caller : callers) caller.join();
  CHECK(sum == 5 * 200 * 120);
}

TEST_CASE("the_first_exception_of_a_body_reaches_the_caller_and_the_pool_lives_on") {
  ThreadPool pool(2);
  CHECK_THROWS_WITH_AS(run(pool, 100,
                           [](int64_t task) {
                             if (task == 3) throw std::runtime_error("task 3");
                           }),
                       "task 3", std::runtime_error);
  std::atomic<int> count{0};
  run(pool, 10, [&](int64_t) { ++count; });
  CHECK(count == 10);
}

TEST_CASE("workers_take_part") {
  ThreadPool pool(2);
  std::atomic<int> together{0};
  std::atomic<bool> met{false};
  run(pool, 2, [&](int64_t) {
    ++together;
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (together < 2 && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
    if (together == 2) met = true;
  });
  CHECK(met);
}

TEST_CASE("no_worker_helps_while_callers_fill_the_cores") {
  ThreadPool pool(2);
  std::atomic<int> inside{0};
  std::atomic<bool> leave{false};
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 2; ++caller)
    callers.emplace_back([&] {
      run(pool, 1, [&](int64_t) {
        ++inside;
        while (!leave) std::this_thread::yield();
      });
    });
  while (inside < 2) std::this_thread::yield();
  std::atomic<int> by_others{0};
  const std::thread::id self = std::this_thread::get_id();
  run(pool, 1000, [&](int64_t) { by_others += std::this_thread::get_id() != self; });
  CHECK(by_others == 0);
  leave = true;
  for (std::thread& caller : callers) caller.join();
}

TEST_CASE("a_forked_child_computes_alone_and_leaves_without_hanging") {
  auto pool = std::make_unique<ThreadPool>(3);
  run(*pool, 100, [](int64_t) {});
  const pid_t child = fork();
  if (child == 0) {
    alarm(10);  // a hang becomes a signal
    int64_t sum = 0;
    run(*pool, 10, [&](int64_t task) { sum += task; });
    pool.reset();
    _exit(sum == 45 ? 0 : 1);
  }
  int state = 0;
  REQUIRE(waitpid(child, &state, 0) == child);
  CHECK(WIFEXITED(state));
  CHECK(WEXITSTATUS(state) == 0);
}

TEST_CASE("the_default_size_is_the_cpuset") {
  CHECK(ThreadPool::cpuset_size() >= 1);
  CHECK(ThreadPool().thread_count() == ThreadPool::cpuset_size());
}

}  // namespace
}  // namespace tessera
