#include "runtime/backends/cpu/kernels/elementwise.h"
#include "runtime/backends/cpu/kernels/kernels.h"
#include "runtime/backends/cpu/kernels/strided.h"

namespace tessera::cpu {

Result<PreparedKernel> prepare_transpose(const KernelSpec& spec) {
  return dispatch_element_size(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    int64_t strides[TSR_ABI_MAX_RANK];
    row_major_strides(spec.input_dims(0), strides);
    StridedBox box;
    for (int64_t dim : spec.ints("perm")) box.add(spec.input_dims(0)[static_cast<size_t>(dim)], strides[dim]);
    const int64_t elements = spec.output_elements(0);
    return reference_kernel(
        spec, 0, make_kernel([=](const LaunchArgs& args) {
          const T* x = args.in<T>(0);
          T* y = args.out<T>(0);
          args.pool.parallel_ranges(elements, kElementGrain, [&](int64_t begin, int64_t end) {
            T* to = y + begin;
            box.for_each_offset(begin, end, [&](int64_t offset) { *to++ = x[offset]; });
          });
        }));
  });
}

}  // namespace tessera::cpu
