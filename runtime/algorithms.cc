#include "runtime/algorithms.h"

#include <cstddef>
#include <map>

#include "runtime/device_set_impl.h"
#include "runtime/host_services.h"
#include "runtime/kernel_description.h"

namespace tessera {

namespace {

bool can_tune(const tsr_backend_api& api) {
  return api.struct_size >= offsetof(tsr_backend_api, kernel_tune) + sizeof(api.kernel_tune) &&
         api.kernel_tune != nullptr;
}

}  // namespace

bool can_time_algorithms(DeviceSet& devices) { return can_tune(*devices.impl().api); }

Result<AlgorithmChoices> time_algorithms(const Program& program, const AlgorithmChoices& known,
                                         DeviceSet& devices) {
  const DeviceSet::Impl& set = devices.impl();
  AlgorithmChoices made{set.catalog->backend(), {}};
  std::map<std::string, std::string> choices;  // by kernel; empty: it has only one algorithm
  if (known.backend == made.backend)
    for (const AlgorithmChoice& choice : known.choices) choices.emplace(choice.kernel, choice.variant);
  if (can_tune(*set.api))
    for (const RankProgram& rank : program.ranks)
      for (const KernelDesc& desc : rank.kernels) {
        const OpView view{desc.attrs, desc.inputs, desc.outputs, desc.factors};
        std::string kernel = question_text(*desc.op, view);
        if (choices.contains(kernel)) continue;
        const KernelDescription description(*desc.op, view, desc.variant);
        tsr_abi_kernel_info info{};
        info.struct_size = sizeof(info);
        TSR_RETURN_IF_ERROR(
            take_error(set.api->kernel_tune(set.devices[0], &description.abi(), &info)).with_context(kernel));
        choices.emplace(std::move(kernel), info.variant == desc.variant ? "" : info.variant);
      }
  for (auto& [kernel, variant] : choices)
    if (!variant.empty()) made.choices.push_back({kernel, variant});
  return made;
}

bool use_algorithms(const AlgorithmChoices& algorithms, DeviceSet& devices) {
  return devices.impl().catalog->use(algorithms);
}

}  // namespace tessera
