#include <algorithm>

#include "graph/base/blocks/block_codec.h"
#include "runtime/backends/cpu/kernels/elementwise.h"
#include "runtime/backends/cpu/kernels/kernels.h"

namespace tessera::cpu {

namespace {

constexpr int64_t kChunk = 256;  // columns: the largest block
constexpr int64_t kRowGrain = 16;

struct Sizes {
  int64_t N = 0, K = 0, R = 0;
  bool trans = true;
  DType stored = DType::kF32;
  double factor = 1;
};

// Columns [first, first + count) of row n of the weight.
template <class T>
void read_weight(const Sizes& s, const std::byte* w, int64_t n, int64_t first, int64_t count, double* out) {
  if (s.stored == DType::kF32 || s.stored == DType::kF64) {
    const T* values = reinterpret_cast<const T*>(w);
    for (int64_t k = 0; k < count; ++k)
      out[k] = static_cast<double>(values[s.trans ? n * s.K + first + k : (first + k) * s.N + n]);
    return;
  }
  float decoded[kChunk];
  if (s.trans) {
    decode_blocks(s.stored, w + dtype_bytes(s.stored, n * s.K + first), decoded, count);
  } else {
    for (int64_t k = 0; k < count; ++k)
      decode_blocks(s.stored, w + dtype_bytes(s.stored, (first + k) * s.N + n), decoded + k, 1);
  }
  std::copy_n(decoded, count, out);
}

}  // namespace

// w [N, K] or [K, N] in any type, a, b -> [N]. Sums in double, k ascending.
Result<PreparedKernel> prepare_adapter_row_squares(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(1), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    Sizes s;
    s.trans = spec.i64("trans_w") == 1;
    s.N = spec.output_elements(0);
    s.K = spec.input_dims(0)[s.trans ? 1 : 0];
    s.R = spec.input_dims(1)[s.trans ? 0 : 1];
    s.stored = spec.input_dtype(0);
    s.factor = spec.f64("factor");
    auto kernel = make_kernel([s](const LaunchArgs& args) {
      const T *a = args.in<T>(1), *b = args.in<T>(2);
      T* out = args.out<T>(0);
      args.pool.parallel_ranges(s.N, kRowGrain, [&](int64_t begin, int64_t end) {
        double part[kChunk];
        for (int64_t n = begin; n < end; ++n) {
          double sum = 0;
          for (int64_t first = 0; first < s.K; first += kChunk) {
            const int64_t count = std::min(kChunk, s.K - first);
            read_weight<T>(s, args.in<std::byte>(0), n, first, count, part);
            for (int64_t r = 0; r < s.R; ++r) {
              const double weight = s.factor * static_cast<double>(b[s.trans ? n * s.R + r : r * s.N + n]);
              for (int64_t k = 0; k < count; ++k)
                part[k] +=
                    weight * static_cast<double>(a[s.trans ? r * s.K + first + k : (first + k) * s.R + r]);
            }
            for (int64_t k = 0; k < count; ++k) sum += part[k] * part[k];
          }
          out[n] = static_cast<T>(sum);
        }
      });
    });
    return reference_kernel(spec, static_cast<double>(s.N * s.K) * (2 * static_cast<double>(s.R) + 3),
                            std::move(kernel));
  });
}

}  // namespace tessera::cpu
