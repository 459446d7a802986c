#include <cstddef>
#include <cstring>

#include "runtime/backends/cpu/kernels/kernels.h"
#include "runtime/backends/cpu/kernels/row_kernel.h"

namespace tessera::cpu {

// x [B, T, C], length [B] -> y [B, C]. Any dtype: rows are copied as bytes. `length` is untrusted: a row that
// does not exist gives 0.
Result<PreparedKernel> prepare_select_row(const KernelSpec& spec) {
  const auto dims = spec.input_dims(0);
  const int64_t B = dims[0], T = dims[1], row_bytes = dtype_bytes(spec.input_dtype(0), dims[2]);
  auto launch = [=](const LaunchArgs& args) {
    const std::byte* x = args.in<std::byte>(0);
    const int32_t* length = args.in<int32_t>(1);
    std::byte* y = args.out<std::byte>(0);
    if (row_bytes == 0) return;
    for (int64_t b = 0; b < B; ++b) {
      if (length[b] >= 1 && length[b] <= T) {
        std::memcpy(y + b * row_bytes, x + (b * T + length[b] - 1) * row_bytes,
                    static_cast<size_t>(row_bytes));
      } else {
        std::memset(y + b * row_bytes, 0, static_cast<size_t>(row_bytes));
      }
    }
  };
  return reference_kernel(spec, make_kernel(launch), 0);
}

}  // namespace tessera::cpu
