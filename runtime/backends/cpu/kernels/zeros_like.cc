#include <cstring>

#include "runtime/backends/cpu/kernels/elementwise.h"
#include "runtime/backends/cpu/kernels/kernels.h"

namespace tessera::cpu {

Result<PreparedKernel> prepare_zeros_like(const KernelSpec& spec) {
  const int64_t bytes = dtype_bytes(spec.output_dtype(0), spec.output_elements(0));
  PreparedKernel prepared = reference_kernel(spec, 0, make_kernel([bytes](const LaunchArgs& args) {
                                               if (bytes > 0)
                                                 std::memset(args.outputs[0], 0, static_cast<size_t>(bytes));
                                             }));
  prepared.bytes = operand_bytes(spec, 0);
  return prepared;
}

}  // namespace tessera::cpu
