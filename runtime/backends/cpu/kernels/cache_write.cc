#include <algorithm>
#include <cstddef>
#include <cstring>

#include "runtime/backends/cpu/kernels/kernels.h"
#include "runtime/backends/cpu/kernels/row_kernel.h"

namespace tessera::cpu {

// cache [B, S, KV, D], new [B, T, KV, D], start, length [B] -> cache. Any dtype: rows move as bytes. `start`
// and `length` are untrusted: rows outside the cache are dropped.
Result<PreparedKernel> prepare_cache_write(const KernelSpec& spec) {
  const auto cache_dims = spec.input_dims(0);
  const int64_t B = cache_dims[0], S = cache_dims[1], T = spec.input_dims(1)[1];
  const int64_t row_bytes = dtype_bytes(spec.input_dtype(0), cache_dims[2] * cache_dims[3]);
  auto launch = [=](const LaunchArgs& args) {
    const std::byte *cache = args.in<std::byte>(0), *rows = args.in<std::byte>(1);
    const int32_t *start = args.in<int32_t>(2), *length = args.in<int32_t>(3);
    std::byte* out = args.out<std::byte>(0);
    if (out != cache && B * S * row_bytes > 0)
      std::memcpy(out, cache, static_cast<size_t>(B * S * row_bytes));
    for (int64_t b = 0; b < B; ++b) {
      const int64_t begin = std::max<int64_t>(0, -int64_t{start[b]});
      const int64_t end = std::min<int64_t>(std::min<int64_t>(length[b], T), S - start[b]);
      if (begin < end && row_bytes > 0)
        std::memcpy(out + (b * S + start[b] + begin) * row_bytes, rows + (b * T + begin) * row_bytes,
                    static_cast<size_t>((end - begin) * row_bytes));
    }
  };
  PreparedKernel prepared = reference_kernel(spec, make_kernel(launch), 0);
  prepared.bytes = 2 * static_cast<double>(B * T * row_bytes);  // in place, as programs run it
  return prepared;
}

}  // namespace tessera::cpu
