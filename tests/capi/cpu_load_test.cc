// What other processes take of the cores: from a text of counters, and while one does.
#include "engine/base/cpu_load.h"

#include <doctest/doctest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <thread>

using namespace tessera;

TEST_CASE("busy seconds are those of the process's cores, without idling and without counting guests twice") {
  constexpr const char* kStat =
      "cpu  0 0 0 0 0 0 0 0 0 0\n"
      "cpu0 100 20 30 9999 8888 4 5 6 50 7\n"
      "cpu1 1 0 0 9999 0 0 0 0 0 0\n"
      "cpu10 1000 0 0 0 0 0 0 0 0 0\n"
      "intr 1 2 3\n";
  cpu_set_t cores;
  CPU_ZERO(&cores);
  CPU_SET(0, &cores);
  CHECK(busy_seconds(kStat, cores, 100) == 1.65);
  CPU_SET(1, &cores);
  CHECK(busy_seconds(kStat, cores, 100) == 1.66);
  CPU_SET(2, &cores);
  CHECK_FALSE(busy_seconds(kStat, cores, 100).has_value());
  CHECK_FALSE(busy_seconds("", cores, 100).has_value());
}

TEST_CASE("own work is not that of others, and a share is one of all cores") {
  const CpuLoad before{10, 5, 100, 2};
  CHECK(share_of_others(before, {14, 9, 102, 2}) == 0);
  CHECK(share_of_others(before, {14, 8, 102, 2}) == 0.25);
  CHECK(share_of_others(before, {14, 5, 102, 2}) == 1);
  CHECK(share_of_others(before, before) == 0);
}

TEST_CASE("another process that computes is seen") {
  const std::optional<CpuLoad> before = read_cpu_load();
  if (!before) {
    MESSAGE("SKIPPED: the system does not tell who uses its cores");
    return;
  }
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0)
    for (std::atomic<unsigned> i{0};;) ++i;
  std::this_thread::sleep_for(std::chrono::milliseconds(400));
  const std::optional<CpuLoad> after = read_cpu_load();
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  REQUIRE(after.has_value());
  CHECK(share_of_others(*before, *after) * after->cores > 0.2);
}
