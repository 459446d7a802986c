#include <algorithm>
#include <cmath>

#include "runtime/backends/cpu/kernels/elementwise.h"
#include "runtime/backends/cpu/kernels/kernels.h"

namespace tessera::cpu {

// Partial sums stand in the workspace, one a task, added in order: the same bits for any number of threads.
Result<PreparedKernel> prepare_sum_squares(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    const int64_t count = spec.input_elements(0);
    PreparedKernel prepared =
        reference_kernel(spec, 2 * static_cast<double>(count), make_kernel([count](const LaunchArgs& args) {
                           const T* x = args.in<T>(0);
                           auto* partial = static_cast<double*>(args.workspace);
                           args.pool.parallel_ranges(count, kElementGrain, [&](int64_t begin, int64_t end) {
                             double sum = 0;
                             for (int64_t i = begin; i < end; ++i)
                               sum += static_cast<double>(x[i]) * static_cast<double>(x[i]);
                             partial[begin / kElementGrain] = sum;
                           });
                           double total = 0;
                           for (int64_t task = 0; task * kElementGrain < count; ++task)
                             total += partial[task];
                           *args.out<T>(0) = static_cast<T>(total);
                         }));
    prepared.workspace_bytes =
        static_cast<int64_t>(sizeof(double)) * ((count + kElementGrain - 1) / kElementGrain);
    return prepared;
  });
}

Result<PreparedKernel> prepare_clip_scale(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    const int given = spec.i64("by_step") == 1 ? spec.input_count() - 1 : -1;  // operand max_norm
    const bool scaled = spec.input_count() - (given < 0 ? 0 : 1) == 2;
    return reference_kernel(
        spec, 8, make_kernel([planned = spec.f64("max_norm"), given, scaled](const LaunchArgs& args) {
          const double max_norm = given < 0 ? planned : *args.in<double>(given);
          const double loss_scale = scaled ? static_cast<double>(*args.in<T>(1)) : 1;
          const double norm = std::sqrt(static_cast<double>(*args.in<T>(0))) / loss_scale;
          const double scale = std::isfinite(norm) ? std::min(1.0, max_norm / (norm + 1e-6)) / loss_scale : 0;
          *args.out<T>(0) = static_cast<T>(scale);
          *args.out<T>(1) = static_cast<T>(norm);
        }));
  });
}

}  // namespace tessera::cpu
