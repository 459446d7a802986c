// DeviceSet: the opened devices that the ranks of a Program run on ("cpu:4"), with their backend and thread pool.
// Over a transport it is those of all its processes, in their order; each opens its own.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "graph/base/result.h"
#include "graph/cluster.h"
#include "graph/kernel_catalog.h"
#include "graph/rank_set.h"
#include "runtime/backend_registry.h"
#include "runtime/core_arbiter.h"

namespace tessera {

// DeviceShare: one of `count` equal, contiguous parts of a list of devices.
struct DeviceShare {
  int32_t index = 0, count = 1;
};

class Channel;
class Transport;

class DeviceSet {
 public:
  // "cpu:4": four virtual devices; "cuda": every GPU; "cuda:0,1": those two; "cuda:0,0": two ranks on one GPU.
  // The registry must outlive the set. kInvalidArgument where the devices cannot be shared out equally.
  // `transport`: to the processes that open their own devices at the same time; null: this is the world.
  static Result<std::shared_ptr<DeviceSet>> open(BackendRegistry& registry, std::string_view text,
                                                 DeviceShare share = {}, std::shared_ptr<Transport> transport = nullptr);
  ~DeviceSet();

  int32_t size() const;    // of the world: the devices of all processes that run together
  RankSet ranks() const;   // that live here, each on a device of this process
  const std::string& text() const;  // as opened: "cpu:4"; for a share, the text that opens as many equal devices
  std::string device_name(int32_t rank) const;
  // Rates and limits reported by the backend, and the profile if one was given.
  Cluster cluster() const;
  // Sets the measured profile of the devices and its file, before the set is shared. False if
  // the profile's algorithms are ignored, since they are of another device, library or build.
  bool use_profile(std::shared_ptr<const DeviceProfile> profile, std::string path = {});
  const std::string& profile_path() const;  // empty for none
  const KernelCatalog& catalog() const;           // answers from the backend's kernel_query, cached; thread-safe

  int32_t hosts() const;  // machines of all processes

  CoreArbiter& arbiter() const;  // turns on the cores that these devices share

  // To the processes of the other devices, for what concerns the devices and plans for them; null: there are none.
  Channel* channel() const;

  // For runtime/ only.
  struct Impl;
  Impl& impl() { return *impl_; }

 private:
  explicit DeviceSet(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace tessera
