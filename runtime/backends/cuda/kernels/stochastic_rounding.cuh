// Rounding to bf16 by random bits, bit for bit as the CPU backend does it: a value becomes one of its two
// neighbours, the upper one with the probability that makes the expectation the value itself.
#pragma once

#include <cstdint>

#include "runtime/backends/cuda/kernels/element.cuh"
#include "runtime/backends/cuda/kernels/philox.cuh"

namespace tessera::cuda {

// The row-major index in the whole tensor of an element of a shard that is one range of every dim. Dims that
// lie in the shard as they do in the whole count as one; that leaves rows, matrices of rows, and tensors of
// those.
struct ShardIndex {
  int64_t begin = 0;                          // of the shard's first element
  int64_t row = 1, rows = 1;                  // elements of a row, rows of a matrix, in the shard
  int64_t row_stride = 0, matrix_stride = 0;  // from one to the next in the whole; 0: there is one

  // kUnsupported for shards of several ranges of a dim, or with more dims.
  static Result<ShardIndex> of(const KernelSpec& spec) {
    struct Level {
      int64_t extent, stride;
    };
    constexpr int kMost = 3;
    Level levels[kMost];  // from the last dim on
    int count = 0;
    ShardIndex made;
    int64_t stride = 1;
    const auto dims = spec.output_dims(0);
    for (int dim = static_cast<int>(dims.size()) - 1; dim >= 0; --dim) {
      const tsr_abi_factor& factor = spec.factor(static_cast<char>('a' + dim));
      const int64_t extent = dims[static_cast<size_t>(dim)];
      if (factor.range_count > 1)
        return Status(StatusCode::kUnsupported, format("two ranges of dim {}: wanted one", dim));
      made.begin += factor.begin[0] * stride;
      if (count == 0) levels[count++] = {1, 1};
      Level& last = levels[count - 1];
      if (last.extent * last.stride == stride) {
        last.extent *= extent;
      } else if (extent != 1) {
        if (count == kMost)
          return Status(StatusCode::kUnsupported, format("a shard cut along more than {} dims", kMost));
        levels[count++] = {extent, stride};
      }
      stride *= factor.global_extent;
    }
    if (count > 0) made.row = levels[0].extent;
    if (count > 1) {
      made.rows = levels[1].extent;
      made.row_stride = levels[1].stride;
    }
    if (count > 2) made.matrix_stride = levels[2].stride;
    return made;
  }

  __device__ uint64_t at(int64_t local) const {
    int64_t index = begin;
    if (row_stride == 0) {
      index += local;
    } else {
      const int64_t in_row = local % row, r = local / row;
      index +=
          in_row + (matrix_stride == 0 ? r * row_stride : r % rows * row_stride + r / rows * matrix_stride);
    }
    return static_cast<uint64_t>(index);
  }
};

// What an update writes a parameter's value with.
struct StochasticRounding {
  static constexpr bool kHasSeed = true;
  // Of each parameter: its own random numbers, and where its shard lies.
  struct Own {
    uint64_t salt = 0;
    ShardIndex index;
  };
  const int64_t* seed_at = nullptr;
  uint64_t seed = 0;
  Own own;
  // The bits of the last eight elements, of which a thread mostly takes all.
  mutable uint64_t block = ~uint64_t{0};
  mutable PhiloxBits bits{};

  void bind(const void* seed_operand) { seed_at = static_cast<const int64_t*>(seed_operand); }
  // Launches that share a seed are made together, whatever is the parameters' own.
  bool operator==(const StochasticRounding& other) const { return seed_at == other.seed_at; }
  __device__ void begin() { seed = static_cast<uint64_t>(*seed_at); }
  __host__ __device__ void take(const Own& next) {
    own = next;
    block = ~uint64_t{0};
  }
  // A number of bf16, for element `i` of the shard.
  __device__ float operator()(int64_t i, float value) const {
    if (value != value) return value;  // adding might make a number of a NaN
    const uint64_t at = own.index.at(i);
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

// The value itself: storing it rounds to nearest.
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
