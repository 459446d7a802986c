#include "runtime/device_run_lock.h"

#include <doctest/doctest.h>

#include <array>
#include <atomic>
#include <optional>
#include <random>
#include <thread>
#include <vector>

namespace tessera {
namespace {

using Ordinals = std::vector<int32_t>;

TEST_CASE("no_device_is_held_twice_at_once_and_every_run_gets_it") {
  constexpr int32_t kDevices = 5;
  const tsr_backend_api api{};
  DeviceRunLock lock;
  const std::atomic<bool> stop = false;
  std::array<std::atomic<int>, kDevices> on{};
  std::atomic<int> clashes = 0, taken = 0;
  std::vector<std::thread> runs;
  for (uint32_t thread = 0; thread < 6; ++thread)
    runs.emplace_back([&, thread] {
      std::mt19937 random(thread);
      for (int run = 0; run < 200; ++run) {
        Ordinals mine;
        for (int32_t device = 0; device < kDevices; ++device)
          if (random() % 2 != 0) mine.push_back(device);
        const DeviceRunLock::Guard turn(lock, api, mine, stop);
        for (const int32_t device : mine) clashes += on[static_cast<size_t>(device)]++;
        std::this_thread::yield();
        for (const int32_t device : mine) --on[static_cast<size_t>(device)];
        ++taken;
      }
    });
  for (std::thread& run : runs) run.join();
  CHECK(clashes == 0);
  CHECK(taken == 1200);
}

TEST_CASE("guards_on_other_devices_or_another_backend_do_not_wait") {
  const tsr_backend_api api{}, other{};
  DeviceRunLock lock;
  const std::atomic<bool> stop = false;
  const Ordinals low = {0, 1}, high = {2, 3};
  const DeviceRunLock::Guard first(lock, api, low, stop), second(lock, api, high, stop),
      third(lock, other, low, stop);
}

TEST_CASE("the_first_claim_is_not_overtaken") {
  const tsr_backend_api api{};
  DeviceRunLock lock;
  const std::atomic<bool> stop = false;
  const Ordinals mine = {0};
  for (int round = 0; round < 20; ++round) {
    std::optional<DeviceRunLock::Guard> turn;
    turn.emplace(lock, api, mine, stop);
    std::atomic<bool> has_run = false;
    std::thread other([&] {
      const DeviceRunLock::Guard waited(lock, api, mine, stop);
      has_run = true;
    });
    // A run after another, as in training: the other comes in between as soon as it waits.
    for (int run = 0; !has_run; ++run) {
      turn.reset();
      turn.emplace(lock, api, mine, stop);
      std::this_thread::yield();
    }
    turn.reset();
    other.join();
  }
}

TEST_CASE("a_stop_ends_the_wait_for_the_lock") {
  const tsr_backend_api api{};
  DeviceRunLock lock;
  const Ordinals mine = {0, 1};
  const std::atomic<bool> goes_on = false;
  const DeviceRunLock::Guard turn(lock, api, mine, goes_on);
  std::atomic<bool> stop = false;
  std::thread waits([&] { const DeviceRunLock::Guard without(lock, api, mine, stop); });
  stop = true;
  lock.wake();
  waits.join();
}

}  // namespace
}  // namespace tessera
