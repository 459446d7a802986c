#include "runtime/backends/cpu/kernels/simd_targets.h"

#include "hwy/highway.h"

namespace tessera::cpu {

Status simd_supported() {
  if ((hwy::SupportedTargets() & HWY_TARGETS) != 0) return {};
  return Status(StatusCode::kUnsupported, "vector kernels need a CPU with at least SSE4.2, AES and CLMUL");
}

Status require_simd_f32(const KernelSpec& spec) {
  TSR_RETURN_IF_ERROR(simd_supported());
  const auto check = [](const tsr_abi_tensor& tensor) -> Status {
    const DType dtype = static_cast<DType>(tensor.dtype);
    if (dtype == DType::kF32 || !info(dtype).is_float) return {};
    return Status(StatusCode::kUnsupported, format("dtype {}: this kernel computes in f32", to_text(dtype)));
  };
  for (int i = 0; i < spec.input_count(); ++i) TSR_RETURN_IF_ERROR(check(spec.input(i)));
  for (int i = 0; i < spec.output_count(); ++i) TSR_RETURN_IF_ERROR(check(spec.output(i)));
  return {};
}

PreparedKernel simd_prepared(const KernelSpec& spec, double flops, std::unique_ptr<Kernel> kernel,
                             int64_t workspace_bytes) {
  double bytes = 0;
  const auto add = [&](const tsr_abi_tensor& tensor) {
    bytes += static_cast<double>(dtype_bytes(static_cast<DType>(tensor.dtype), KernelSpec::elements(tensor)));
  };
  for (int i = 0; i < spec.input_count(); ++i) add(spec.input(i));
  for (int i = 0; i < spec.output_count(); ++i) add(spec.output(i));
  return {.kernel = std::move(kernel),
          .workspace_bytes = workspace_bytes,
          .flops = flops,
          .bytes = bytes,
          .efficiency = 0.3};
}

}  // namespace tessera::cpu
