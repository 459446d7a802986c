// OnCallThreads: every call is answered once, also where threads are just ending for want of calls; idle ones
// go away.
#include "runtime/on_call_threads.h"

#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <random>
#include <thread>

#include "graph/base/waiting.h"

using namespace tessera;
using namespace std::chrono_literals;

namespace {

int64_t threads_of_process() {
  int64_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/task")) ++count;
  return count;
}

}  // namespace

TEST_CASE("threads_on_call_begin_with_the_first_call_and_end_when_none_comes") {
  std::thread([] {}).join();  // sanitizers begin one of their own with the first
  const int64_t before = threads_of_process();
  std::atomic<int> done{0};
  OnCallThreads threads(
      3, [&](int32_t thread) { done += 1 + thread; }, true, {}, 20ms);
  CHECK(threads_of_process() == before);
  threads.call();
  CHECK(threads_of_process() >= before);
  for (int wait = 0; wait < 1000 && (done != 6 || threads_of_process() > before); ++wait)
    std::this_thread::sleep_for(2ms);
  CHECK(done == 6);
  CHECK(threads_of_process() == before);
  threads.call();
  for (int wait = 0; wait < 1000 && done != 12; ++wait) std::this_thread::sleep_for(1ms);
  CHECK(done == 12);
}

TEST_CASE("threads_on_call_answer_every_call_however_near_their_end_it_comes") {
  std::mt19937 random(1);
  for (const bool may_spin : {false, true}) {
    WaitWord done{0};
    OnCallThreads threads(
        2,
        [&](int32_t) {
          done.fetch_add(1);
          done.notify_all();
        },
        may_spin, {}, 200us);
    for (int call = 1; call <= 150; ++call) {
      threads.call();
      for (int seen; (seen = done.load()) < 2 * call;) wait_while(done, seen, false);
      REQUIRE(done == 2 * call);
      std::this_thread::sleep_for(std::chrono::microseconds(random() % 500));
    }
  }
}
