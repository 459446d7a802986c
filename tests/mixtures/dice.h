// Dice: random numbers that are the same on every machine (std::uniform_int_distribution is not).
#pragma once

#include <cstdint>
#include <initializer_list>
#include <random>

namespace mixtures {

class Dice {
 public:
  explicit Dice(uint32_t seed) : random_(seed) {}
  uint32_t below(uint32_t n) { return static_cast<uint32_t>(random_() % n); }
  bool one_in(uint32_t n) { return below(n) == 0; }
  int64_t one_of(std::initializer_list<int64_t> list) {
    return list.begin()[below(static_cast<uint32_t>(list.size()))];
  }
  float uniform() { return static_cast<float>(random_() >> 8) / static_cast<float>(1 << 24); }  // [0, 1)

 private:
  std::mt19937 random_;
};

}  // namespace mixtures
