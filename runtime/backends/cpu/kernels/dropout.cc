#include "runtime/backends/cpu/factor_index.h"
#include "runtime/backends/cpu/kernels/elementwise.h"
#include "runtime/backends/cpu/kernels/kernels.h"
#include "runtime/backends/cpu/philox.h"

namespace tessera::cpu {

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

  uint64_t of(int64_t local) const {
    int64_t global = 0;
    for (int dim = rank - 1; dim >= 0; --dim) {
      global += factors[dim].to_global(local % dims[dim]) * strides[dim];
      local /= dims[dim];
    }
    return static_cast<uint64_t>(global);
  }
};

}  // namespace

Result<Prepared> prepare_dropout(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<Prepared> {
    using T = decltype(zero);
    const int64_t count = spec.output_elements(0);
    const double p = spec.f64("p"), kept = 1 / (1 - p);
    const auto salt = static_cast<uint64_t>(spec.i64("salt"));
    return reference_kernel(spec, 30 * static_cast<double>(count),
                            make_kernel([=, index = LogicalIndex(spec)](const LaunchArgs& args) {
                              const T* x = args.in<T>(0);
                              const auto seed = static_cast<uint64_t>(*args.in<int64_t>(1));
                              T* y = args.out<T>(0);
                              args.pool.parallel_ranges(
                                  count, kElementGrain, [&](int64_t begin, int64_t end) {
                                    for (int64_t i = begin; i < end; ++i) {
                                      const auto bits = philox_bits(seed, salt, index.of(i));
                                      const bool keep = uniform_from_bits(bits[0], bits[1]) >= p;
                                      y[i] = keep ? static_cast<T>(static_cast<double>(x[i]) * kept) : T{0};
                                    }
                                  });
                            }));
  });
}

}  // namespace tessera::cpu
