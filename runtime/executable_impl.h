// The members of an Executable; for runtime/ only.
#pragma once

#include <memory>
#include <vector>

#include "runtime/device_set_impl.h"
#include "runtime/session.h"

namespace tessera {

struct Executable::Impl {
  ~Impl() {
    for (const std::vector<tsr_abi_kernel*>& rank : kernels)
      for (tsr_abi_kernel* kernel : rank) devices->impl().api->kernel_destroy(kernel);
  }
  const tsr_backend_api& api() const { return *devices->impl().api; }

  std::shared_ptr<DeviceSet> devices;  // shared: executables may outlive other users of the set
  Program program;
  std::vector<std::vector<tsr_abi_kernel*>> kernels;  // by Program::ranks, then RankProgram::kernels
};

}  // namespace tessera
