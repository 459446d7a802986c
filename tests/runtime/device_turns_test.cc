#include "runtime/device_turns.h"

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

TEST_CASE("no_device_has_two_turns_at_once_and_everybody_gets_one") {
  constexpr int32_t kDevices = 5;
  const tsr_backend_api api{};
  DeviceTurns turns;
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
        const DeviceTurns::Turn turn(turns, api, mine, stop);
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

TEST_CASE("turns_on_other_devices_or_another_backend_wait_for_nobody") {
  const tsr_backend_api api{}, other{};
  DeviceTurns turns;
  const std::atomic<bool> stop = false;
  const Ordinals low = {0, 1}, high = {2, 3};
  const DeviceTurns::Turn first(turns, api, low, stop), second(turns, api, high, stop),
      third(turns, other, low, stop);
}

TEST_CASE("who_came_first_is_not_overtaken") {
  const tsr_backend_api api{};
  DeviceTurns turns;
  const std::atomic<bool> stop = false;
  const Ordinals mine = {0};
  for (int round = 0; round < 20; ++round) {
    std::optional<DeviceTurns::Turn> turn;
    turn.emplace(turns, api, mine, stop);
    std::atomic<bool> has_run = false;
    std::thread other([&] {
      const DeviceTurns::Turn waited(turns, api, mine, stop);
      has_run = true;
    });
    // A run after another, as in training: the other comes in between as soon as it waits.
    for (int run = 0; !has_run; ++run) {
      turn.reset();
      turn.emplace(turns, api, mine, stop);
      std::this_thread::yield();
    }
    turn.reset();
    other.join();
  }
}

TEST_CASE("a_stop_ends_the_wait_for_a_turn") {
  const tsr_backend_api api{};
  DeviceTurns turns;
  const Ordinals mine = {0, 1};
  const std::atomic<bool> goes_on = false;
  const DeviceTurns::Turn turn(turns, api, mine, goes_on);
  std::atomic<bool> stop = false;
  std::thread waits([&] { const DeviceTurns::Turn without(turns, api, mine, stop); });
  stop = true;
  turns.wake();
  waits.join();
}

}  // namespace
}  // namespace tessera
