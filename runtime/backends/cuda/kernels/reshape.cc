// Ops that keep the order of bytes, or make all of them zero.
#include "runtime/backends/cuda/cuda_status.h"
#include "runtime/backends/cuda/kernels/kernels.h"

namespace tessera::cuda {

namespace {

Result<PreparedKernel> copy_all(const KernelSpec& spec) {
  const int64_t bytes = dtype_bytes(spec.output_dtype(0), spec.output_elements(0));
  return memory_bound(spec, make_kernel([bytes](const LaunchArgs& args) -> Status {
                        if (bytes == 0 || args.inputs[0] == args.outputs[0]) return {};
                        return from_cuda(
                            cudaMemcpyAsync(args.outputs[0], args.inputs[0], static_cast<size_t>(bytes),
                                            cudaMemcpyDeviceToDevice, args.stream),
                            "copy");
                      }));
}

}  // namespace

Result<PreparedKernel> prepare_split_dim(const KernelSpec& spec) { return copy_all(spec); }
Result<PreparedKernel> prepare_merge_dims(const KernelSpec& spec) { return copy_all(spec); }

Result<PreparedKernel> prepare_zeros_like(const KernelSpec& spec) {
  const int64_t bytes = dtype_bytes(spec.output_dtype(0), spec.output_elements(0));
  PreparedKernel prepared = memory_bound(
      spec, make_kernel([bytes](const LaunchArgs& args) -> Status {
        if (bytes == 0) return {};
        return from_cuda(cudaMemsetAsync(args.outputs[0], 0, static_cast<size_t>(bytes), args.stream),
                         "zeros_like");
      }));
  prepared.bytes = operand_bytes(spec, 0);
  return prepared;
}

}  // namespace tessera::cuda
