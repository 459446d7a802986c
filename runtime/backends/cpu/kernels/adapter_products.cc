// Reference kernels of adapter_shrink and adapter_expand.
#include <cstddef>

#include "graph/base/half.h"
#include "runtime/backends/cpu/kernels/kernels.h"
#include "runtime/backends/cpu/kernels/row_kernel.h"

namespace tessera::cpu {

namespace {

// Element i of factors, which are of type F or of 16 bits.
template <class F>
double factor_at(const void* factors, DType dtype, int64_t i) {
  switch (dtype) {
    case DType::kBF16: return f32_from_bf16(static_cast<const uint16_t*>(factors)[i]);
    case DType::kF16: return f32_from_f16(static_cast<const uint16_t*>(factors)[i]);
    default: return static_cast<double>(static_cast<const F*>(factors)[i]);
  }
}

}  // namespace

// x [T, K], a [S, R, K], adapter [T] -> low [T, R]. `adapter` is untrusted: slots that are not there give 0.
Result<PreparedKernel> prepare_adapter_shrink(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using F = decltype(zero);
    const auto dims = spec.input_dims(1);
    const int64_t S = dims[0], R = dims[1], K = dims[2], T = spec.input_elements(2);
    const DType stored = spec.input_dtype(1);
    auto launch = [=](const LaunchArgs& args) {
      const F* x = args.in<F>(0);
      const int32_t* adapter = args.in<int32_t>(2);
      F* low = args.out<F>(0);
      args.pool.parallel_ranges(T, row_grain(R * K), [&](int64_t begin, int64_t end) {
        for (int64_t t = begin; t < end; ++t) {
          const int64_t slot = adapter[t];
          for (int64_t r = 0; r < R; ++r) {
            double sum = 0;
            if (slot >= 0 && slot < S)
              for (int64_t k = 0; k < K; ++k)
                sum += double(x[t * K + k]) * factor_at<F>(args.inputs[1], stored, (slot * R + r) * K + k);
            low[t * R + r] = F(sum);
          }
        }
      });
    };
    return reference_kernel(spec, make_kernel(launch), 2 * double(T) * double(R * K));
  });
}

// low [T, R], b [S, R, N], adapter [T], base [T, N] -> y [T, N]. `adapter` is untrusted: without a slot y is base.
Result<PreparedKernel> prepare_adapter_expand(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using F = decltype(zero);
    if (spec.input_dtype(3) != spec.input_dtype(0))
      return Status(StatusCode::kUnsupported,
                    format("dtype {}: this kernel computes in f32 or f64", to_text(spec.input_dtype(3))));
    const auto dims = spec.input_dims(1);
    const int64_t S = dims[0], R = dims[1], N = dims[2], T = spec.input_elements(2);
    const DType stored = spec.input_dtype(1);
    auto launch = [=](const LaunchArgs& args) {
      const F *low = args.in<F>(0), *base = args.in<F>(3);
      const int32_t* adapter = args.in<int32_t>(2);
      F* y = args.out<F>(0);
      args.pool.parallel_ranges(T, row_grain(R * N), [&](int64_t begin, int64_t end) {
        for (int64_t t = begin; t < end; ++t) {
          const int64_t slot = adapter[t];
          const bool has = slot >= 0 && slot < S;
          for (int64_t n = 0; n < N; ++n) {
            double sum = 0;
            for (int64_t r = 0; has && r < R; ++r)
              sum += double(low[t * R + r]) * factor_at<F>(args.inputs[1], stored, (slot * R + r) * N + n);
            y[t * N + n] = has ? F(double(base[t * N + n]) + sum) : base[t * N + n];
          }
        }
      });
    };
    return reference_kernel(spec, make_kernel(launch), 2 * double(T) * double(R * N));
  });
}

}  // namespace tessera::cpu
