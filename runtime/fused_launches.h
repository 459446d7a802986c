// FusedLaunches: kernels that follow one another on a stream, as the few launches that the backend makes of
// them (kernel_fuse). What a training step ends with, an update a parameter, costs hundreds of launches of a
// few microseconds otherwise. Addresses are settled when a session is made, so this is too.
#pragma once

#include <span>
#include <vector>

#include "graph/base/result.h"
#include "runtime/backend_abi.h"
#include "runtime/rank_stream.h"

namespace tessera {

class FusedLaunches {
 public:
  // Takes nothing where the backend has no kernel_fuse.
  FusedLaunches(const tsr_backend_api& api, tsr_abi_device* device) : api_(api), device_(device) {}
  ~FusedLaunches();
  FusedLaunches(const FusedLaunches&) = delete;
  FusedLaunches& operator=(const FusedLaunches&) = delete;

  // The steps of one entry on one stream, with their waits. The first of those that become one launch does
  // the work of all, the others become Step::Kind::kFused. A step that waits for another stream is never done
  // earlier than it would be: it begins a new launch, as does what follows anything but a kernel. So nothing
  // is overtaken that a member depends on, and those that wait for a member wait for the launch.
  Status fuse(std::span<Step> steps);

  size_t count() const { return kernels_.size(); }

 private:
  Status fuse_run(std::span<Step> kernels);

  const tsr_backend_api& api_;
  tsr_abi_device* device_;
  std::vector<tsr_abi_kernel*> kernels_;
};

// The backend has what fusing takes.
bool can_fuse(const tsr_backend_api& api);

}  // namespace tessera
