// Perturbation: short random waits, for tests that want every order of threads. Disabled by seed 0.
#pragma once

#include <chrono>
#include <cstdint>
#include <thread>

namespace tessera {

class Perturbation {
 public:
  explicit Perturbation(uint64_t seed = 0) : state_(seed) {}  // 0: off

  // Usually does nothing, often yields, now and then sleeps up to 100 us.
  void pause() {
    if (state_ == 0) return;
    state_ ^= state_ << 13, state_ ^= state_ >> 7, state_ ^= state_ << 17;  // xorshift: never reaches 0
    const uint64_t draw = state_ >> 40;
    if (draw % 16 == 0)
      std::this_thread::sleep_for(std::chrono::microseconds(draw / 16 % 100));
    else if (draw % 4 == 0)
      std::this_thread::yield();
  }

  // The seed of part `index`, derived from `seed`; 0 stays 0.
  static uint64_t part(uint64_t seed, uint64_t index) {
    if (seed == 0) return 0;
    uint64_t mixed = (seed + index) * 0x9e3779b97f4a7c15u;
    mixed ^= mixed >> 31;
    return mixed != 0 ? mixed : 1;
  }

 private:
  uint64_t state_;
};

}  // namespace tessera
