#include "runtime/device_catalog.h"

#include <bit>

#include "runtime/host_services.h"
#include "runtime/kernel_description.h"

namespace tessera {

Result<KernelChoice> DeviceCatalog::query(const OpDef& op, const OpView& view) const {
  std::string key = question_key(op, view);
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = answers_.find(key); found != answers_.end()) return found->second;
  }
  const KernelDescription description(op, view, "");
  tsr_abi_kernel_info info{};
  info.struct_size = sizeof(info);
  Status status = take_error(api_.kernel_query(ordinal_, &description.abi(), &info));
  Result<KernelChoice> answer = status.ok()
                                    ? Result<KernelChoice>(KernelChoice{info.variant, info.workspace_bytes,
                                                                        info.seconds * seconds_scale_})
                                    : Result<KernelChoice>(status);
  const std::lock_guard lock(mutex_);
  return answers_.emplace(std::move(key), std::move(answer)).first->second;
}

uint64_t DeviceCatalog::fingerprint() const {
  return api_.kernel_fingerprint(ordinal_) ^ (std::bit_cast<uint64_t>(seconds_scale_) * 0x9e3779b97f4a7c15u);
}

}  // namespace tessera
