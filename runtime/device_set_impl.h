// The members of a DeviceSet; for runtime/ only.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "runtime/device_catalog.h"
#include "runtime/device_run_lock.h"
#include "runtime/device_set.h"
#include "runtime/host_services.h"

namespace tessera {

struct DeviceSet::Impl {
  ~Impl() {
    for (tsr_abi_device* device : devices) api->device_close(device);
  }
  const tsr_backend_api* api = nullptr;
  const tsr_host_api* host = nullptr;
  DeviceRunLock* run_lock = nullptr;  // the registry's
  std::shared_ptr<CoreArbiter> arbiter;  // the registry's when they were opened
  std::string text;
  std::vector<int32_t> ordinals;
  std::vector<tsr_abi_device*> devices;  // one per rank
  std::vector<std::string> names;
  tsr_abi_device_info info{};  // of the first
  int32_t threads = 1;
  int64_t sharing = 1;  // devices of the whole list, of any share, that divide one memory
  std::unique_ptr<DeviceCatalog> catalog;
  std::shared_ptr<const DeviceProfile> profile;  // shared with the clusters made from this set
  std::string profile_path;

  // This runtime's pool as a share of the machine that `info` describes.
  double pool_share() const {
    return info.shared_cores > 0 ? static_cast<double>(threads) / static_cast<double>(info.shared_cores)
                                 : 1.0;
  }
};

}  // namespace tessera
