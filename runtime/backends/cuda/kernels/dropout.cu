#include <cmath>

#include "runtime/backends/cuda/kernels/factor_index.cuh"
#include "runtime/backends/cuda/kernels/kernels.h"
#include "runtime/backends/cuda/kernels/map.cuh"
#include "runtime/backends/cuda/kernels/philox.cuh"
#include "runtime/backends/cuda/kernels/shard_index.cuh"

namespace tessera::cuda {

namespace {

// GlobalIndex: like ShardIndex, for shards of any number of ranges and dims.
struct GlobalIndex {
  int rank = 0;
  int64_t dims[TSR_ABI_MAX_RANK] = {};     // local
  int64_t strides[TSR_ABI_MAX_RANK] = {};  // global
  FactorIndex factors[TSR_ABI_MAX_RANK];

  explicit GlobalIndex(const KernelSpec& spec) {
    int64_t stride = 1;
    rank = static_cast<int>(spec.output_dims(0).size());
    for (int dim = rank - 1; dim >= 0; --dim) {
      const tsr_abi_factor& factor = spec.factor(static_cast<char>('a' + dim));
      dims[dim] = spec.output(0).dims[dim];
      factors[dim] = FactorIndex(factor);
      strides[dim] = stride;
      stride *= factor.global_extent;
    }
  }
  __device__ uint64_t to_global(int64_t local) const {
    int64_t global = 0;
#pragma unroll
    for (int dim = TSR_ABI_MAX_RANK - 1; dim >= 0; --dim) {  // constant bounds: no copy in local memory
      if (dim >= rank) continue;
      global += factors[dim].to_global(local % dims[dim]) * strides[dim];
      local /= dims[dim];
    }
    return static_cast<uint64_t>(global);
  }
};

template <class W, class Index>
struct Dropout {
  const int64_t* seed_at;
  uint64_t salt, seed;
  uint64_t dropped;  // the lowest of the 2^53 possible random numbers are dropped
  W kept;
  Index index;
  __device__ void begin() { seed = static_cast<uint64_t>(*seed_at); }
  __device__ void operator()(int64_t i, const W* x, W* y) const {
    y[0] = random_53_bits(philox_bits(seed, salt, index.to_global(i))) >= dropped ? x[0] * kept : W(0);
  }
};

template <class Index>
Result<PreparedKernel> dropout(const KernelSpec& spec, const Index& index) {
  const double p = spec.f64("p");
  const auto salt = static_cast<uint64_t>(spec.i64("salt"));
  // u >= p for u = n / 2^53, both exact in double.
  const auto dropped = static_cast<uint64_t>(std::ceil(p * 0x1p53));
  return map_op<1, 1>(spec, [=](const LaunchArgs& args, auto zero) {
    using W = Wide<decltype(zero)>;
    return Dropout<W, Index>{args.in<int64_t>(1), salt, 0, dropped, W(1 / (1 - p)), index};
  });
}

}  // namespace

// x, seed [] -> y. An element draws the number that it would draw in the whole tensor.
Result<PreparedKernel> prepare_dropout(const KernelSpec& spec) {
  const Result<ShardIndex> index = ShardIndex::create(spec);
  return index.ok() ? dropout(spec, *index) : dropout(spec, GlobalIndex(spec));
}

}  // namespace tessera::cuda
