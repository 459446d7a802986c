// How an update reads and stores a parameter: in its own type, rounded to nearest, or in bf16, rounded by random bits.
#pragma once

#include <array>
#include <bit>
#include <cstdint>

#include "graph/base/half.h"
#include "graph/base/philox.h"
#include "runtime/backends/cpu/cpu_kernel.h"
#include "runtime/backends/cpu/kernels/global_index.h"

namespace tessera::cpu {

// Plain rounding: parameters are read and written in their own type.
template <class T>
struct NearestRounding {
  using Element = T;
  void bind(const LaunchArgs&) {}
  double value(T p) const { return static_cast<double>(p); }
  T rounded(double p, int64_t) { return static_cast<T>(p); }
};

// Stochastic rounding to bf16: 16 random bits choose between the two neighbours.
struct StochasticRounding {
  using Element = uint16_t;
  GlobalIndex index;
  uint64_t salt;
  int seed_input;
  uint64_t seed = 0;
  uint64_t block = ~uint64_t{0};  // whose bits are there
  std::array<uint32_t, 4> bits{};

  explicit StochasticRounding(const KernelSpec& spec)
      : index(spec), salt(static_cast<uint64_t>(spec.i64("salt"))), seed_input(spec.input_count() - 1) {}
  void bind(const LaunchArgs& args) { seed = static_cast<uint64_t>(*args.in<int64_t>(seed_input)); }
  double value(uint16_t p) const { return static_cast<double>(f32_from_bf16(p)); }
  uint16_t rounded(double p, int64_t i) {
    const auto narrow = static_cast<float>(p);
    if (narrow != narrow) return bf16_from_f32(narrow);  // adding might make a number of a NaN
    const uint64_t at = index.to_global(i);
    if (at / 8 != block) {
      block = at / 8;
      bits = philox_bits(seed, salt, block);
    }
    const uint32_t random = bits[at % 8 / 2] >> 16 * (at % 2) & 0xffff;
    return static_cast<uint16_t>((std::bit_cast<uint32_t>(narrow) + random) >> 16);
  }
};

}  // namespace tessera::cpu
