// DynamicMap: 256 numbers in [-1, 1] or [0, 1], dense near 0: a byte stands for the number at its place (Dettmers, "8-bit
// approximations for parallelism in deep learning", ICLR 2016; as in Dettmers et al., ICLR 2022). A decade 10^-6 ... 1 has
// twice as many numbers as the one below, in even steps from a tenth of its end.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

namespace tessera {

class DynamicMap {
 public:
  explicit DynamicMap(bool is_signed) {
    size_t count = 0;
    double decade = 1e-6;
    for (int i = 0; i < 7; ++i, decade *= 10) {
      const int steps = 1 << (is_signed ? i : i + 1);
      for (int step = 0; step < steps; ++step) {
        const double value = decade * (0.1 + 0.9 * (step + 0.5) / steps);
        values_[count++] = static_cast<float>(value);
        if (is_signed) values_[count++] = static_cast<float>(-value);
      }
    }
    values_[count++] = 0;
    values_[count++] = 1;
    std::ranges::sort(values_);
  }

  const std::array<float, 256>& values() const { return values_; }
  float value(uint8_t code) const { return values_[code]; }
  // Returns the code of the nearest number; of two equally near ones the lower.
  uint8_t code(float value) const {
    size_t low = 0, high = 255;  // values_[low] <= value < values_[high], within the range of the map
    while (high - low > 1) {
      const size_t middle = (low + high) / 2;
      (values_[middle] <= value ? low : high) = middle;
    }
    return static_cast<uint8_t>(value - values_[low] <= values_[high] - value ? low : high);
  }

 private:
  std::array<float, 256> values_{};
};

}  // namespace tessera
