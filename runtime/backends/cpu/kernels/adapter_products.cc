// Reference kernels of adapter_shrink, adapter_rows, adapter_expand and adapter_outer.
#include <algorithm>
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

// ids [T], a [S, V, R], adapter [T] -> low [T, R]. Both indices are untrusted: slots and rows that are not there give 0.
Result<PreparedKernel> prepare_adapter_rows(const KernelSpec& spec) {
  return dispatch_float(spec.output_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using F = decltype(zero);
    const auto dims = spec.input_dims(1);
    const int64_t S = dims[0], V = dims[1], R = dims[2], T = spec.input_elements(0);
    const DType stored = spec.input_dtype(1);
    auto launch = [=](const LaunchArgs& args) {
      const auto *ids = args.in<int32_t>(0), *adapter = args.in<int32_t>(2);
      F* low = args.out<F>(0);
      args.pool.parallel_ranges(T, row_grain(R), [&](int64_t begin, int64_t end) {
        for (int64_t t = begin; t < end; ++t) {
          const int64_t slot = adapter[t], row = ids[t];
          const bool has = slot >= 0 && slot < S && row >= 0 && row < V;
          for (int64_t r = 0; r < R; ++r)
            low[t * R + r] = has ? F(factor_at<F>(args.inputs[1], stored, (slot * V + row) * R + r)) : F(0);
        }
      });
    };
    return reference_kernel(spec, make_kernel(launch), 0);
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

namespace {

// low [B, T, R], x [B, T, K], adapter [B, T] -> out [S, R, K]. A row of T tokens is summed in double, then added.
template <class F>
struct OuterSums {
  const F *low, *x;
  const int32_t* adapter;
  int64_t rows, tokens, R, K;

  // Adds to columns [begin, end) of rank r of a slot; `out`: those of column 0 on.
  void add(int64_t slot, int64_t r, int64_t begin, int64_t end, F* out) const {
    for (int64_t row = 0; row < rows; ++row) {
      double sums[kColumnBlock] = {};
      bool any = false;
      for (int64_t t = row * tokens; t < (row + 1) * tokens; ++t) {
        if (adapter[t] != slot) continue;
        any = true;
        const double factor = static_cast<double>(low[t * R + r]);
        for (int64_t k = begin; k < end; ++k) sums[k - begin] += factor * static_cast<double>(x[t * K + k]);
      }
      for (int64_t k = begin; any && k < end; ++k)
        out[k] = static_cast<F>(static_cast<double>(out[k]) + sums[k - begin]);
    }
  }
};

Result<PreparedKernel> prepare_outer(const KernelSpec& spec, bool from_zero) {
  return dispatch_float(spec.input_dtype(1), [&](auto zero) -> Result<PreparedKernel> {
    using F = decltype(zero);
    const auto dims = spec.output_dims(0), token_dims = spec.input_dims(2);
    const int64_t S = dims[0], R = dims[1], K = dims[2], all = spec.input_elements(2);
    const int64_t tokens = token_dims.empty() ? 1 : token_dims.back(), rows = tokens > 0 ? all / tokens : 0;
    const int64_t blocks = (K + kColumnBlock - 1) / kColumnBlock;
    auto launch = [=](const LaunchArgs& args) {
      const OuterSums<F> sums{args.in<F>(0), args.in<F>(1), args.in<int32_t>(2), rows, tokens, R, K};
      args.pool.parallel_ranges(S * R * blocks, row_grain(all * kColumnBlock), [&](int64_t first, int64_t last) {
        for (int64_t i = first; i < last; ++i) {
          const int64_t line = i / blocks, begin = i % blocks * kColumnBlock, end = std::min(K, begin + kColumnBlock);
          F* const out = args.out<F>(0) + line * K;
          if (from_zero)
            std::fill(out + begin, out + end, F{0});
          else if (args.inputs[3] != args.outputs[0])
            std::copy(args.in<F>(3) + line * K + begin, args.in<F>(3) + line * K + end, out + begin);
          sums.add(line / R, line % R, begin, end, out);
        }
      });
    };
    return reference_kernel(spec, make_kernel(launch), 2 * double(all) * double(R * K));
  });
}

}  // namespace

// low [..., T, R], x [..., T, K], adapter [..., T], sum [S, R, K] -> sum. `adapter` is untrusted: other slots count for none.
Result<PreparedKernel> prepare_adapter_outer(const KernelSpec& spec) { return prepare_outer(spec, false); }

Result<PreparedKernel> prepare_adapter_outer_part(const KernelSpec& spec) { return prepare_outer(spec, true); }

}  // namespace tessera::cpu
