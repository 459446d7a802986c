// StochasticRounding: rounding to bf16 by random bits, with the bits of the CPU backend. A value becomes one
// of its two neighbours, the upper one with the probability that makes the expectation the value itself.
#pragma once

#include <cstdint>

#include "runtime/backends/cuda/kernels/element.cuh"
#include "runtime/backends/cuda/kernels/philox.cuh"
#include "runtime/backends/cuda/kernels/shard_index.cuh"

namespace tessera::cuda {

// Rounds and stores a parameter's value in an update.
struct StochasticRounding {
  static constexpr bool kHasSeed = true;
  // Each parameter has random numbers of its own, and a place of its shard.
  struct Own {
    uint64_t salt = 0;
    ShardIndex index;
  };
  const int64_t* seed_at = nullptr;
  uint64_t seed = 0;
  Own own;
  // The bits of the last eight elements, of which a thread usually takes all.
  mutable uint64_t block = ~uint64_t{0};
  mutable PhiloxBits bits{};

  void bind(const void* seed_operand) { seed_at = static_cast<const int64_t*>(seed_operand); }
  // Equal seeds mean one launch, whatever the parameters' own data are.
  bool operator==(const StochasticRounding& other) const { return seed_at == other.seed_at; }
  __device__ void begin() { seed = static_cast<uint64_t>(*seed_at); }
  __host__ __device__ void take(const Own& next) {
    own = next;
    block = ~uint64_t{0};
  }
  // Returns a bf16 number for element `i` of the shard.
  __device__ float operator()(int64_t i, float value) const {
    if (value != value) return value;  // adding could turn a NaN into a number
    const uint64_t at = own.index.to_global(i);
    if (at / 8 != block) {
      block = at / 8;
      bits = philox_bits(seed, own.salt, block);
    }
    const unsigned word =
        at % 8 < 4 ? (at % 4 < 2 ? bits.word[0] : bits.word[1]) : (at % 4 < 2 ? bits.word[2] : bits.word[3]);
    const unsigned random = word >> 16 * (at % 2) & 0xffffu;
    return __uint_as_float((__float_as_uint(value) + random) & 0xffff0000u);
  }
};

// For an update whose first result is the bf16 parameter; its gradient is f32.
inline Result<StochasticRounding> stochastic_rounding(const KernelSpec& spec) {
  if (spec.input_dtype(1) != DType::kF32)
    return Status(StatusCode::kUnsupported,
                  format("a gradient in {}: this kernel takes f32", to_text(spec.input_dtype(1))));
  TSR_ASSIGN_OR_RETURN(const ShardIndex index, ShardIndex::create(spec));
  StochasticRounding made;
  made.take({static_cast<uint64_t>(spec.i64("salt")), index});
  return made;
}

// The value unchanged: storing it rounds to nearest.
struct NearestRounding {
  static constexpr bool kHasSeed = false;
  struct Own {};
  bool operator==(const NearestRounding&) const = default;
  __device__ void begin() {}
  __host__ __device__ void take(const Own&) {}
  template <class W>
  __device__ W operator()(int64_t, W value) const {
    return value;
  }
};

}  // namespace tessera::cuda
