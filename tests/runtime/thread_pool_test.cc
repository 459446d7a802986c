#include "runtime/thread_pool.h"

#include <doctest/doctest.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <ctime>
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
  std::atomic<int> running{0};
  std::atomic<bool> met{false};
  run(pool, 2, [&](int64_t) {
    ++running;
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (running < 2 && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
    if (running == 2) met = true;
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

TEST_CASE("many_short_jobs_of_several_callers_lose_no_task") {
  ThreadPool pool(3);
  std::vector<std::thread> callers;
  std::atomic<int64_t> wrong{0};
  for (int64_t caller = 0; caller < 4; ++caller)
    callers.emplace_back([&, caller] {
      for (int64_t round = 0; round < 5000; ++round) {
        int64_t done[7] = {};  // on this stack: a late worker must not find the next round's
        const int64_t tasks = 2 + (caller + round) % 6;
        run(pool, tasks, [&](int64_t task) { done[task] += round + 1; });
        for (int64_t task = 0; task < 7; ++task) wrong += done[task] != (task < tasks ? round + 1 : 0);
      }
    });
  for (std::thread& caller : callers) caller.join();
  CHECK(wrong == 0);
}

TEST_CASE("jobs_inside_of_jobs_end") {
  ThreadPool pool(2);
  std::atomic<int64_t> sum{0};
  run(pool, 8, [&](int64_t) { run(pool, 8, [&](int64_t task) { sum += task; }); });
  CHECK(sum == 8 * 28);
}

TEST_CASE("an_idle_pool_takes_no_time_of_a_core") {
  ThreadPool pool(4);
  for (int round = 0; round < 100; ++round) run(pool, 8, [](int64_t) {});
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  const std::clock_t begin = std::clock();  // of all threads of the process
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  CHECK(std::clock() - begin < CLOCKS_PER_SEC / 20);
}

TEST_CASE("threads_on_one_core_take_turns_and_do_not_poll") {
  cpu_set_t all, one;
  REQUIRE(sched_getaffinity(0, sizeof all, &all) == 0);
  CPU_ZERO(&one);
  for (int core = 0; core < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++core)
    if (CPU_ISSET(core, &all)) CPU_SET(core, &one);
  REQUIRE(sched_setaffinity(0, sizeof one, &one) == 0);
  {
    ThreadPool pool(3);  // whose threads inherit it
    std::atomic<int64_t> sum{0};
    for (int round = 0; round < 2000; ++round) run(pool, 4, [&](int64_t task) { sum += task; });
    CHECK(sum == 2000 * 6);
  }
  REQUIRE(sched_setaffinity(0, sizeof all, &all) == 0);
}

TEST_CASE("the_default_size_is_the_cpuset") {
  CHECK(ThreadPool::cpuset_size() >= 1);
  CHECK(ThreadPool().thread_count() == ThreadPool::cpuset_size());
}

}  // namespace
}  // namespace tessera
