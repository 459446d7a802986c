#include "runtime/fused_launches.h"

#include <cstddef>

#include "graph/base/text.h"
#include "runtime/host_services.h"

namespace tessera {

bool can_fuse(const tsr_backend_api& api) {
  return api.struct_size >= offsetof(tsr_backend_api, kernel_fuse) + sizeof(api.kernel_fuse) &&
         api.kernel_fuse != nullptr;
}

FusedLaunches::~FusedLaunches() {
  for (tsr_abi_kernel* kernel : kernels_) api_.kernel_destroy(kernel);
}

Status FusedLaunches::fuse(std::span<Step> steps) {
  if (!can_fuse(api_)) return {};
  for (size_t begin = 0; begin < steps.size();) {
    size_t end = begin;
    while (end < steps.size() && steps[end].kind == Step::Kind::kKernel &&
           (end == begin || steps[end].wait_begin == steps[end].wait_end))
      ++end;
    TSR_RETURN_IF_ERROR(fuse_run(steps.subspan(begin, end - begin)));
    begin = end > begin ? end : begin + 1;
  }
  return {};
}

Status FusedLaunches::fuse_run(std::span<Step> kernels) {
  std::vector<tsr_abi_launch> launches;
  for (const Step& step : kernels)
    launches.push_back({step.kernel, step.inputs, step.outputs, step.workspace});
  for (size_t at = 0; at + 1 < kernels.size();) {
    int32_t taken = 0;
    tsr_abi_kernel* fused = nullptr;
    TSR_RETURN_IF_ERROR(take_error(api_.kernel_fuse(
        device_, launches.data() + at, static_cast<int32_t>(kernels.size() - at), &taken, &fused)));
    if (fused != nullptr) kernels_.push_back(fused);
    if (fused == nullptr || taken < 1) {
      ++at;
      continue;
    }
    const auto members = static_cast<size_t>(taken);
    if (members > kernels.size() - at)
      return Status(StatusCode::kInternal,
                    format("backend '{}' fused {} of {} launches", api_.name, taken, kernels.size() - at));
    Step& first = kernels[at];
    first.kernel = fused;
    first.inputs = nullptr;
    first.outputs = nullptr;
    first.workspace = nullptr;
    for (size_t i = 1; i < members; ++i) kernels[at + i].kind = Step::Kind::kFused;
    at += members;
  }
  return {};
}

}  // namespace tessera
