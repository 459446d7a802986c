// The devices that the emulator stands for, and what the calling thread has of them: its device, its last
// error.
#pragma once

#include <cuda_runtime_api.h>

#include <string_view>

namespace emulator {

// TESSERA_EMULATED_DEVICE, which the first of them is without it.
struct DeviceKind {
  std::string_view name;
  int major, minor, multiprocessors, most_shared;
};
const DeviceKind& device_kind();
// TESSERA_EMULATED_PEERS=none: devices do not reach each other's memory.
bool has_peers();

int current_device();  // of the calling thread
// Kept for the next query of the last error.
cudaError_t report(cudaError_t error);

}  // namespace emulator
