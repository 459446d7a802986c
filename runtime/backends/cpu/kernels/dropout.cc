#include "graph/base/philox.h"
#include "runtime/backends/cpu/kernels/elementwise.h"
#include "runtime/backends/cpu/kernels/global_index.h"
#include "runtime/backends/cpu/kernels/kernels.h"

namespace tessera::cpu {

Result<PreparedKernel> prepare_dropout(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    const int64_t count = spec.output_elements(0);
    const double p = spec.f64("p"), kept = 1 / (1 - p);
    const auto salt = static_cast<uint64_t>(spec.i64("salt"));
    return reference_kernel(spec, 30 * static_cast<double>(count),
                            make_kernel([=, index = GlobalIndex(spec)](const LaunchArgs& args) {
                              const T* x = args.in<T>(0);
                              const auto seed = static_cast<uint64_t>(*args.in<int64_t>(1));
                              T* y = args.out<T>(0);
                              args.pool.parallel_ranges(
                                  count, kElementGrain, [&](int64_t begin, int64_t end) {
                                    for (int64_t i = begin; i < end; ++i) {
                                      const auto bits = philox_bits(seed, salt, index.to_global(i));
                                      const bool keep = uniform_from_bits(bits[0], bits[1]) >= p;
                                      y[i] = keep ? static_cast<T>(static_cast<double>(x[i]) * kept) : T{0};
                                    }
                                  });
                            }));
  });
}

// x [..., T, K], seed, row, rate [...] -> y
Result<PreparedKernel> prepare_row_dropout(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    const auto dims = spec.output_dims(0);
    const size_t rank = dims.size();
    const int64_t count = spec.output_elements(0), row = dims[rank - 2] * dims[rank - 1];
    const auto salt = static_cast<uint64_t>(spec.i64("salt"));
    const bool has_rates = spec.input_count() > 3;
    const double of_all = spec.f64("p");
    auto launch = [=, index = GlobalIndex(spec, static_cast<int>(rank) - 2)](const LaunchArgs& args) {
      const T* x = args.in<T>(0);
      const auto *seed = args.in<int64_t>(1), *number = args.in<int64_t>(2);
      const double* rate = has_rates ? args.in<double>(3) : nullptr;
      T* y = args.out<T>(0);
      args.pool.parallel_ranges(count, kElementGrain, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          const int64_t b = i / row;
          const double p = rate == nullptr ? of_all : rate[b];
          if (!(p > 0)) {
            y[i] = x[i];
            continue;
          }
          const uint64_t at = static_cast<uint64_t>(number[b]) * static_cast<uint64_t>(index.row) + index.to_global(i);
          const auto bits = philox_bits(static_cast<uint64_t>(seed[b]), salt, at);
          const bool keep = uniform_from_bits(bits[0], bits[1]) >= p;
          y[i] = keep ? static_cast<T>(static_cast<double>(x[i]) * (1 / (1 - p))) : T{0};
        }
      });
    };
    return reference_kernel(spec, 30 * static_cast<double>(count), make_kernel(launch));
  });
}

}  // namespace tessera::cpu
