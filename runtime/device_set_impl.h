// The members of a DeviceSet; for runtime/ only.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "runtime/device_catalog.h"
#include "runtime/device_run_lock.h"
#include "runtime/device_set.h"
#include "runtime/host_services.h"
#include "runtime/transport.h"

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
  std::shared_ptr<Transport> transport;  // to the other processes of the world; null: this is all of it
  std::unique_ptr<Channel> channel;      // for what concerns the devices, and plans for them; null likewise
  std::vector<int32_t> firsts = {0};     // the first rank of each process
  std::vector<tsr_abi_device_info> kinds;  // of the world's devices, each different one once
  std::vector<int32_t> kind_of;            // by process, into `kinds`
  int32_t hosts = 1;                       // machines of the world
  int32_t on_host = 0;                     // devices of each machine, which are consecutive; 0: there is one, or they are not alike
  int32_t most_on_host = 0;                // of the machine with the most
  int32_t pools_on_host = 1;               // processes on this machine, whose threads share its cores
  RankSet ranks;                         // those of the devices here, which the next two have in their order
  std::vector<int32_t> ordinals;
  std::vector<tsr_abi_device*> devices;
  std::vector<std::string> names;
  tsr_abi_device_info info{};  // of the first
  int32_t threads = 1;
  int64_t sharing = 1;  // devices of the whole list, of any share, that divide one memory
  std::unique_ptr<DeviceCatalog> catalog;
  std::shared_ptr<const DeviceProfile> profile;  // shared with the clusters made from this set
  std::string profile_path;

  // The process that a rank lives in.
  int32_t process_of(int32_t rank) const {
    return static_cast<int32_t>(std::ranges::upper_bound(firsts, rank) - firsts.begin()) - 1;
  }
  // Finds the devices of the other processes. Collective over the world.
  Status join_world();
  // The pools of this machine's processes as a share of the machine that `info` describes.
  double pool_share() const {
    return info.shared_cores > 0
               ? static_cast<double>(threads) * pools_on_host / static_cast<double>(info.shared_cores)
               : 1.0;
  }
};

}  // namespace tessera
