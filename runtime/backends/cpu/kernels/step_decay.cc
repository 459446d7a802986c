#include <algorithm>
#include <cmath>

#include "runtime/backends/cpu/kernels/activation_math.h"
#include "runtime/backends/cpu/kernels/recurrent_kernels.h"
#include "runtime/backends/cpu/kernels/row_kernel.h"

namespace tessera::cpu {

namespace {

struct StepRange {
  double least, most;
  bool has(double step) const { return step >= least && step <= most; }
  double clamp(double step) const { return step < least ? least : step > most ? most : step; }
};

double softplus(double x) { return std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x))); }

}  // namespace

// x [R, H], log_rate [H], bias [H] -> step, log_decay [R, H]
Result<PreparedKernel> prepare_step_decay(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using F = decltype(zero);
    const Rows rows = rows_of(spec.input_dims(0));
    const StepRange range{spec.f64("least"), spec.f64("most")};
    auto launch = [=](const LaunchArgs& args) {
      const F *x = args.in<F>(0), *log_rate = args.in<F>(1), *bias = args.in<F>(2);
      F *step = args.out<F>(0), *log_decay = args.out<F>(1);
      args.pool.parallel_ranges(rows.count, row_grain(16 * rows.cols), [&](int64_t begin, int64_t end) {
        for (int64_t i = begin * rows.cols; i < end * rows.cols; ++i) {
          const int64_t h = i % rows.cols;
          const double value = range.clamp(softplus(double(x[i]) + double(bias[h])));
          step[i] = F(value);
          log_decay[i] = F(-std::exp(double(log_rate[h])) * value);
        }
      });
    };
    return reference_kernel(spec, make_kernel(launch), 12.0 * double(rows.count * rows.cols));
  });
}

// dstep, dlog_decay, x [R, H], log_rate [H], bias [H] -> dx [R, H], dlog_rate [H], dbias [H]
Result<PreparedKernel> prepare_step_decay_grad(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(2), [&](auto zero) -> Result<PreparedKernel> {
    using F = decltype(zero);
    const Rows rows = rows_of(spec.input_dims(2));
    const StepRange range{spec.f64("least"), spec.f64("most")};
    auto launch = [=](const LaunchArgs& args) {
      const F *dstep = args.in<F>(0), *dlog_decay = args.in<F>(1), *x = args.in<F>(2);
      F *dx = args.out<F>(0), *dlog_rate = args.out<F>(1), *dbias = args.out<F>(2);
      args.pool.parallel_ranges(rows.cols, row_grain(16 * rows.count), [&](int64_t begin, int64_t end) {
        for (int64_t h = begin; h < end; ++h) {
          const double rate = std::exp(double(args.in<F>(3)[h])), bias = double(args.in<F>(4)[h]);
          double rate_sum = 0, bias_sum = 0;
          for (int64_t i = h; i < rows.count * rows.cols; i += rows.cols) {
            const double z = double(x[i]) + bias, step = softplus(z), g = double(dlog_decay[i]);
            const double slope = range.has(step) ? (double(dstep[i]) - rate * g) * sigmoid(z) : 0;
            dx[i] = F(slope);
            rate_sum -= g * rate * range.clamp(step);
            bias_sum += slope;
          }
          dlog_rate[h] = F(rate_sum);
          dbias[h] = F(bias_sum);
        }
      });
    };
    return reference_kernel(spec, make_kernel(launch), 16.0 * double(rows.count * rows.cols));
  });
}

}  // namespace tessera::cpu
