#include <cstddef>
#include <cstring>

#include "runtime/backends/cpu/kernels/kernels.h"
#include "runtime/backends/cpu/kernels/row_kernel.h"

namespace tessera::cpu {

// state [R, ...], from, to [N] -> state. Any dtype: rows are copied as bytes, a part of a row by each task. Numbers are untrusted.
Result<PreparedKernel> prepare_row_copy(const KernelSpec& spec) {
  const auto dims = spec.input_dims(0);
  const int64_t rows = dims[0], count = spec.input_dims(1)[0];
  int64_t elements = 1;
  for (size_t i = 1; i < dims.size(); ++i) elements *= dims[i];
  const int64_t row_bytes = dtype_bytes(spec.input_dtype(0), elements);
  constexpr int64_t kPart = 1 << 18;  // bytes of a task
  auto launch = [=](const LaunchArgs& args) {
    const std::byte* state = args.in<std::byte>(0);
    const int32_t *from = args.in<int32_t>(1), *to = args.in<int32_t>(2);
    std::byte* out = args.out<std::byte>(0);
    if (out != state && rows * row_bytes > 0) std::memcpy(out, state, static_cast<size_t>(rows * row_bytes));
    args.pool.parallel_ranges(row_bytes, kPart, [&](int64_t begin, int64_t end) {
      for (int64_t n = 0; n < count; ++n) {
        if (from[n] < 0 || from[n] >= rows || to[n] < 0 || to[n] >= rows) continue;
        std::memcpy(out + to[n] * row_bytes + begin, state + from[n] * row_bytes + begin, static_cast<size_t>(end - begin));
      }
    });
  };
  PreparedKernel prepared = reference_kernel(spec, make_kernel(launch), 0);
  prepared.bytes = 2 * static_cast<double>(count * row_bytes);  // in place, as programs run it
  return prepared;
}

}  // namespace tessera::cpu
