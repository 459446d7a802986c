// Launches of kernels, and what is set of a kernel for them.
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <functional>
#include <map>
#include <mutex>
#include <utility>

#include "tests/cuda_emulator/device.h"
#include "tests/cuda_emulator/memory.h"
#include "tests/cuda_emulator/runtime.h"
#include "tests/cuda_emulator/streams.h"

namespace {

using namespace emulator;

constexpr int kMostThreads = 1024;

size_t g_overlaps = 0;
std::atomic<size_t> g_work = 0;

// The attributes set for a kernel, on a device.
struct FunctionSettings {
  int set_aside = -1, carveout = -1;
};
FunctionSettings& settings_of(int device, const void* kernel) {
  static std::map<std::pair<int, const void*>, FunctionSettings> all;
  return all[{device, kernel}];
}

}  // namespace

namespace emulator {

cudaError_t enqueue(const Config& given, Compiled& compiled, const void* name, std::function<void()> body) {
  const std::lock_guard lock(g_mutex);
  Config config = given;
  const FunctionSettings settings =
      name == nullptr ? FunctionSettings{} : settings_of(stream_of(config.stream)->device, name);
  config.set_aside = settings.set_aside;
  const auto decline = [&](const char* what) {
    std::fprintf(stderr, "cuda emulator: %s: a launch with %s (%u %u %u blocks of %u %u %u, %zu bytes)\n",
                 config.kernel, what, config.blocks.x, config.blocks.y, config.blocks.z, config.threads.x,
                 config.threads.y, config.threads.z, config.shared_bytes);
    return report(cudaErrorInvalidConfiguration);
  };
  if (config.blocks.x == 0 || config.blocks.y == 0 || config.blocks.z == 0 || config.blocks.x > 0x7fffffffu ||
      config.blocks.y > 65535 || config.blocks.z > 65535)
    return decline("an impossible grid");
  if (config.threads.x * config.threads.y * config.threads.z == 0 ||
      config.threads.x * config.threads.y * config.threads.z > kMostThreads)
    return decline("an impossible block");
  if (config.shared_bytes >
      std::max(kMostUnaskedShared, static_cast<size_t>(std::max(settings.set_aside, 0))))
    return decline("more shared memory than was set aside");
  if (config.overlaps && (device_kind().major < 9 || !stream_of(config.stream)->ends_in_kernel))
    return decline("nothing to overlap with");
  // A multiprocessor divides what is shared memory and what cache for all of its blocks, and is empty when it
  // divides again.
  if (config.overlaps && settings.carveout != stream_of(config.stream)->carveout)
    return decline("another share of shared memory than the kernel that it overlaps with");
  // Kernels are loaded when they are first launched, which may want memory.
  if (!compiled.is_loaded && stream_of(config.stream)->capture != nullptr) {
    stream_of(config.stream)->capture->is_invalid = true;
    std::fprintf(stderr, "cuda emulator: %s is launched for the first time during a capture\n",
                 config.kernel);
    return report(cudaErrorStreamCaptureUnsupported);
  }
  compiled.is_loaded = true;
  constexpr double kSeconds = 1e-6;  // what events say of any kernel
  enqueue_work(
      config.stream,
      [config, body = std::move(body), device = stream_of(config.stream)->device] {
        const Reach reach(device);
        run_kernel(config, body);
      },
      kSeconds);
  stream_of(config.stream)->ends_in_kernel = true;
  stream_of(config.stream)->carveout = settings.carveout;
  g_overlaps += config.overlaps;
  note_work();
  return cudaSuccess;
}

Compiled& compiled(const void* kernel) {
  const std::lock_guard lock(g_mutex);
  static std::map<const void*, Compiled> all;
  return all[kernel];
}

void note_work() { ++g_work; }

}  // namespace emulator

extern "C" {

__attribute__((visibility("default"))) size_t tessera_emulated_work() { return g_work; }
__attribute__((visibility("default"))) size_t tessera_emulated_overlaps() {
  const std::lock_guard lock(g_mutex);
  return g_overlaps;
}
// All kernels count as compiled for the device.
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* out, const void*) {
  *out = {};
  out->ptxVersion = out->binaryVersion = 10 * device_kind().major + device_kind().minor;
  return cudaSuccess;
}
cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute attribute, int value) {
  const std::lock_guard lock(g_mutex);
  FunctionSettings& settings = settings_of(current_device(), kernel);
  switch (attribute) {
    case cudaFuncAttributeMaxDynamicSharedMemorySize:
      if (value > device_kind().most_shared) return report(cudaErrorInvalidValue);
      settings.set_aside = value;
      return cudaSuccess;
    case cudaFuncAttributePreferredSharedMemoryCarveout:
      if (value < -1 || value > 100) return report(cudaErrorInvalidValue);
      settings.carveout = value;
      return cudaSuccess;
    default: return report(cudaErrorInvalidValue);
  }
}

}  // extern "C"
