#include "runtime/backends/cpu/kernels/activation_math.h"
#include "runtime/backends/cpu/kernels/kernels.h"
#include "runtime/backends/cpu/kernels/row_kernel.h"

namespace tessera::cpu {

// out [B, T, H, V], lse [B, T, H], sinks [H] -> y [B, T, H, V]
Result<PreparedKernel> prepare_attention_sink(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using F = decltype(zero);
    const auto dims = spec.input_dims(0);
    const int64_t H = dims[2], V = dims[3], rows = dims[0] * dims[1] * H;
    auto launch = [=](const LaunchArgs& args) {
      const F *out = args.in<F>(0), *lse = args.in<F>(1), *sinks = args.in<F>(2);
      F* y = args.out<F>(0);
      args.pool.parallel_ranges(rows, row_grain(V), [&](int64_t begin, int64_t end) {
        for (int64_t row = begin; row < end; ++row) {
          const double share = sigmoid(double(lse[row]) - double(sinks[row % H]));
          for (int64_t v = row * V; v < (row + 1) * V; ++v) y[v] = F(share * double(out[v]));
        }
      });
    };
    return reference_kernel(spec, make_kernel(launch), double(rows * V));
  });
}

// dy, out [B, T, H, V], lse [B, T, H], sinks [H] -> dout, dlse, dsinks
Result<PreparedKernel> prepare_attention_sink_grad(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using F = decltype(zero);
    const auto dims = spec.input_dims(0);
    const int64_t H = dims[2], V = dims[3], rows = dims[0] * dims[1] * H;
    auto launch = [=](const LaunchArgs& args) {
      const F *dy = args.in<F>(0), *out = args.in<F>(1), *lse = args.in<F>(2), *sinks = args.in<F>(3);
      F *dout = args.out<F>(0), *dlse = args.out<F>(1), *dsinks = args.out<F>(2);
      args.pool.parallel_ranges(rows, row_grain(3 * V), [&](int64_t begin, int64_t end) {
        for (int64_t row = begin; row < end; ++row) {
          const double share = sigmoid(double(lse[row]) - double(sinks[row % H]));
          double sum = 0;
          for (int64_t v = row * V; v < (row + 1) * V; ++v) {
            sum += double(dy[v]) * double(out[v]);
            dout[v] = F(share * double(dy[v]));
          }
          dlse[row] = F(share * (1 - share) * sum);
        }
      });
      column_sums(args.pool, Rows{H == 0 ? 0 : rows / H, H}, dlse, dsinks);
      for (int64_t h = 0; h < H; ++h) dsinks[h] = -dsinks[h];
    };
    return reference_kernel(spec, make_kernel(launch), 4.0 * double(rows * V));
  });
}

}  // namespace tessera::cpu
