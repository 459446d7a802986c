#include <algorithm>

#include "runtime/backends/cpu/kernels/head_products.h"
#include "runtime/backends/cpu/kernels/kernels.h"
#include "runtime/backends/cpu/kernels/row_kernel.h"

namespace tessera::cpu {

// x [B, T, H, K], w [H * M, K] -> y [B, T, H, end - begin], or with trans_w = 0 the other way round. Sums in double,
// ascending. Weights of another type are decoded a head at a time.
Result<PreparedKernel> prepare_head_matmul(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    const HeadProducts p(spec);
    const bool decodes = p.stored != spec.input_dtype(0);
    const int64_t K = p.K(), N = p.N(), k_step = p.trans ? 1 : p.columns, n_step = p.trans ? p.columns : 1;
    auto launch = [=](const LaunchArgs& args) {
      args.pool.parallel_for(p.H, [&](int64_t h) {
        Scratch scratch(args.pool, decodes ? std::max<int64_t>(1, K * N) : 1);
        float* const decoded = scratch.floats(decodes ? K * N : 0);
        if (decodes && K * N > 0) decode_blocks(p.stored, p.weight_of(args, h), decoded, K * N);
        const auto* const w = reinterpret_cast<const T*>(p.weight_of(args, h));
        for (int64_t m = 0; m < p.M; ++m) {
          const T* x = args.in<T>(0) + (m * p.H + h) * K;
          T* y = args.out<T>(0) + (m * p.H + h) * N;
          for (int64_t n = 0; n < N; ++n) {
            double sum = 0;
            for (int64_t k = 0; k < K; ++k) {
              const int64_t at = k * k_step + n * n_step;
              sum += double(x[k]) * (decodes ? double(decoded[at]) : double(w[at]));
            }
            y[n] = T(sum);
          }
        }
      });
    };
    return reference_kernel(spec, make_kernel(launch), p.flops());
  });
}

}  // namespace tessera::cpu
