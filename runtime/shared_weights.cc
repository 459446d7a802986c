#include "runtime/shared_weights.h"

#include "graph/base/text.h"
#include "runtime/executable_impl.h"
#include "runtime/host_services.h"

namespace tessera {

bool SharedWeights::is_supported(const Executable& executable) {
  return has_flag(*executable.devices().impl().api, TSR_BACKEND_BLOCKING);
}

SharedWeights::SharedWeights(const Program& program) {
  for (const RankProgram& rank : program.ranks) weights_.emplace_back(rank.slots.size());
}

Result<std::shared_ptr<std::byte>> allocate_weight(const std::shared_ptr<DeviceSet>& devices, size_t index,
                                                   int64_t bytes) {
  const tsr_backend_api& api = *devices->impl().api;
  tsr_abi_device* device = devices->impl().devices[index];
  void* memory = nullptr;
  TSR_RETURN_IF_ERROR(take_error(api.memory_alloc(device, 0, bytes, TSR_ALLOC_GUARDED, &memory))
                          .with_context(format("a weight of {}", bytes_text(bytes))));
  const auto free = [devices, device, bytes](std::byte* at) {
    devices->impl().api->memory_free(device, 0, at, bytes);
  };
  return std::shared_ptr<std::byte>(static_cast<std::byte*>(memory), free);
}

}  // namespace tessera
