#include <cmath>

#include "runtime/backends/cpu/kernels/elementwise.h"
#include "runtime/backends/cpu/kernels/kernels.h"

namespace tessera::cpu {

Result<PreparedKernel> prepare_loss_scaling(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    return reference_kernel(spec, 1, make_kernel([initial = spec.f64("initial")](const LaunchArgs& args) {
                              *args.out<T>(0) =
                                  static_cast<T>(initial * std::exp2(static_cast<double>(*args.in<T>(0))));
                            }));
  });
}

Result<PreparedKernel> prepare_loss_scaling_update(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    const auto interval = static_cast<double>(spec.i64("interval"));
    const double least = spec.f64("least"), most = spec.f64("most");
    return reference_kernel(spec, 2, make_kernel([=](const LaunchArgs& args) {
                              auto offset = static_cast<double>(*args.in<T>(0));
                              double good = static_cast<double>(*args.in<T>(1)) + 1;
                              if (!std::isfinite(*args.in<T>(2))) {
                                if (offset - 1 >= least) offset -= 1;
                                good = 0;
                              } else if (good >= interval) {
                                if (offset + 1 <= most) offset += 1;
                                good = 0;
                              }
                              *args.out<T>(0) = static_cast<T>(offset);
                              *args.out<T>(1) = static_cast<T>(good);
                            }));
  });
}

}  // namespace tessera::cpu
