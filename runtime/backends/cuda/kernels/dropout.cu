#include "runtime/backends/cuda/kernels/factor_index.cuh"
#include "runtime/backends/cuda/kernels/kernels.h"
#include "runtime/backends/cuda/kernels/map.cuh"
#include "runtime/backends/cuda/kernels/philox.cuh"

namespace tessera::cuda {

namespace {

// The row-major index in the whole tensor of an element of the shard.
struct LogicalIndex {
  int rank = 0;
  int64_t dims[TSR_ABI_MAX_RANK] = {};     // local
  int64_t strides[TSR_ABI_MAX_RANK] = {};  // global
  FactorIndex factors[TSR_ABI_MAX_RANK];

  explicit LogicalIndex(const KernelSpec& spec) {
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
  __device__ uint64_t of(int64_t local) const {
    int64_t global = 0;
    for (int dim = rank - 1; dim >= 0; --dim) {
      global += factors[dim].to_global(local % dims[dim]) * strides[dim];
      local /= dims[dim];
    }
    return static_cast<uint64_t>(global);
  }
};

template <class W>
struct Dropout {
  const int64_t* seed_at;
  uint64_t salt, seed;
  double p;
  W kept;
  LogicalIndex index;
  __device__ void begin() { seed = static_cast<uint64_t>(*seed_at); }
  __device__ void operator()(int64_t i, const W* x, W* y) const {
    const PhiloxBits bits = philox_bits(seed, salt, index.of(i));
    y[0] = uniform_from_bits(bits.word[0], bits.word[1]) >= p ? x[0] * kept : W(0);
  }
};

}  // namespace

Result<Prepared> prepare_dropout(const KernelSpec& spec) {
  const double p = spec.f64("p");
  const auto salt = static_cast<uint64_t>(spec.i64("salt"));
  return map_op<1, 1>(spec, [p, salt, index = LogicalIndex(spec)](const LaunchArgs& args, auto zero) {
    using W = Wide<decltype(zero)>;
    return Dropout<W>{args.in<int64_t>(1), salt, 0, p, W(1 / (1 - p)), index};
  });
}

}  // namespace tessera::cuda
