// Random: splitmix64. A mutant is a function of its number, so any one can be made again.
#pragma once

#include <cstdint>
#include <span>

namespace tessera::fuzz {

class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t next() {
    uint64_t z = (state_ += 0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }
  uint64_t below(uint64_t count) { return next() % count; }  // count > 0
  bool one_in(uint64_t count) { return below(count) == 0; }
  template <class T>
  const T& pick(std::span<const T> values) {
    return values[below(values.size())];
  }

 private:
  uint64_t state_;
};

}  // namespace tessera::fuzz
