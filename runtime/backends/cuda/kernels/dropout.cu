#include <cmath>

#include "runtime/backends/cuda/kernels/factor_index.cuh"
#include "runtime/backends/cuda/kernels/kernels.h"
#include "runtime/backends/cuda/kernels/map.cuh"
#include "runtime/backends/cuda/kernels/philox.cuh"
#include "runtime/backends/cuda/kernels/rows.cuh"
#include "runtime/backends/cuda/kernels/shard_index.cuh"

namespace tessera::cuda {

namespace {

// GlobalIndex: like ShardIndex, for shards of any number of ranges and dims. `first`: the dims before it do not count.
struct GlobalIndex {
  int rank = 0;
  int64_t row = 1;                         // elements of the whole row
  int64_t dims[TSR_ABI_MAX_RANK] = {};     // local
  int64_t strides[TSR_ABI_MAX_RANK] = {};  // global
  FactorIndex factors[TSR_ABI_MAX_RANK];

  explicit GlobalIndex(const KernelSpec& spec, int first = 0) {
    int64_t stride = 1;
    rank = static_cast<int>(spec.output_dims(0).size());
    for (int dim = rank - 1; dim >= 0; --dim) {
      const tsr_abi_factor& factor = spec.factor(static_cast<char>('a' + dim));
      dims[dim] = spec.output(0).dims[dim];
      factors[dim] = FactorIndex(factor);
      strides[dim] = dim < first ? 0 : stride;
      stride *= factor.global_extent;
      if (dim == first) row = stride;
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

// A row of `row` elements of the shard has its own seed, number and rate (null: p).
template <class T>
struct RowDropout {
  const T* x;
  const int64_t *seed, *number;
  const double* rate;
  T* y;
  double p;
  uint64_t salt;
  int64_t row;
  GlobalIndex index;
  __device__ void operator()(int64_t i) const {
    const int64_t b = i / row;
    const double dropped_share = rate == nullptr ? p : rate[b];
    if (!(dropped_share > 0)) {
      y[i] = x[i];
      return;
    }
    using W = Wide<T>;
    const auto dropped = dropped_share < 1 ? static_cast<uint64_t>(ceil(dropped_share * 0x1p53)) : uint64_t{1} << 53;
    const uint64_t at = static_cast<uint64_t>(number[b]) * static_cast<uint64_t>(index.row) + index.to_global(i);
    const bool keep = random_53_bits(philox_bits(static_cast<uint64_t>(seed[b]), salt, at)) >= dropped;
    y[i] = narrow<T>(keep ? static_cast<W>(widen(x[i])) * W(1 / (1 - dropped_share)) : W(0));
  }
};

}  // namespace

// x, seed [] -> y. An element draws the number that it would draw in the whole tensor.
Result<PreparedKernel> prepare_dropout(const KernelSpec& spec) {
  const Result<ShardIndex> index = ShardIndex::create(spec);
  return index.ok() ? dropout(spec, *index) : dropout(spec, GlobalIndex(spec));
}

// x [..., T, K], seed, row, rate [...] -> y. An element draws the number that it would draw in its row of a whole batch.
Result<PreparedKernel> prepare_row_dropout(const KernelSpec& spec) {
  const auto dims = spec.output_dims(0);
  const size_t rank = dims.size();
  const int64_t count = spec.output_elements(0), row = dims[rank - 2] * dims[rank - 1];
  const auto salt = static_cast<uint64_t>(spec.i64("salt"));
  const bool has_rates = spec.input_count() > 3;
  const double p = spec.f64("p");
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    return memory_bound(
        spec, make_kernel([=, index = GlobalIndex(spec, static_cast<int>(rank) - 2)](const LaunchArgs& args) {
          const double* rate = has_rates ? args.in<double>(3) : nullptr;
          launch_each(args.stream, count,
                      RowDropout<T>{args.in<T>(0), args.in<int64_t>(1), args.in<int64_t>(2), rate, args.out<T>(0), p, salt, row, index});
        }));
  });
}

}  // namespace tessera::cuda
