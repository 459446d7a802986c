// What the parts of the emulator share.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstring>
#include <functional>

#include "tests/cuda_emulator/emulator.h"

namespace emulator {

bool is_device_memory(const void* at);  // allocated, pinned memory of the host too
void run_kernel(const Config& config, const std::function<void()>& body);
// On `stream`, as late as it may be. `seconds` is what events say that it took.
void enqueue_work(cudaStream_t stream, std::function<void()> work, double seconds = 0);

}  // namespace emulator
