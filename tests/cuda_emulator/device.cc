#include "tests/cuda_emulator/device.h"

#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "tests/cuda_emulator/runtime.h"

namespace {

using namespace emulator;

constexpr DeviceKind kDeviceKinds[] = {
    {"h100", 9, 0, 132, 232448}, {"a100", 8, 0, 108, 166912}, {"l40s", 8, 9, 142, 101376}};

thread_local cudaError_t t_error = cudaSuccess;
thread_local int t_device = 0;

int device_count() {
  const char* text = std::getenv("TESSERA_EMULATOR_DEVICES");
  return text != nullptr ? std::atoi(text) : 1;
}

}  // namespace

namespace emulator {

const DeviceKind& device_kind() {
  static const DeviceKind& kind = []() -> const DeviceKind& {
    const char* wanted = std::getenv("TESSERA_EMULATED_DEVICE");
    for (const DeviceKind& each : kDeviceKinds)
      if (wanted == nullptr || each.name == wanted) return each;
    std::fprintf(stderr, "cuda emulator: no device '%s', wanted h100, a100 or l40s\n", wanted);
    std::abort();
  }();
  return kind;
}

bool has_peers() {
  static const bool has = [] {
    const char* text = std::getenv("TESSERA_EMULATED_PEERS");
    return text == nullptr || std::string_view(text) != "none";
  }();
  return has;
}

int current_device() { return t_device; }

cudaError_t report(cudaError_t error) {
  if (error != cudaSuccess) t_error = error;
  return error;
}

size_t most_shared() { return static_cast<size_t>(device_kind().most_shared); }

}  // namespace emulator

extern "C" {

cudaError_t cudaGetDeviceCount(int* count) {
  *count = device_count();
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) {
  *device = t_device;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
  if (device < 0 || device >= device_count()) return report(cudaErrorInvalidDevice);
  t_device = device;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* out, int) {
  *out = {};
  const char* name = std::getenv("TESSERA_EMULATOR_NAME");
  std::snprintf(out->name, sizeof(out->name), "%s", name != nullptr ? name : "emulated");
  out->major = device_kind().major;
  out->minor = device_kind().minor;
  out->multiProcessorCount = device_kind().multiprocessors;
  out->totalGlobalMem = size_t{4} << 30;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  switch (attribute) {
    case cudaDevAttrClockRate: *value = 1980000; break;
    case cudaDevAttrMemoryClockRate: *value = 3201000; break;
    case cudaDevAttrGlobalMemoryBusWidth: *value = 6144; break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = device_kind().most_shared; break;
    case cudaDevAttrMultiProcessorCount: *value = device_kind().multiprocessors; break;
    case cudaDevAttrComputeCapabilityMajor: *value = device_kind().major; break;
    case cudaDevAttrComputeCapabilityMinor: *value = device_kind().minor; break;
    default: *value = 0; return report(cudaErrorInvalidValue);
  }
  return cudaSuccess;
}
cudaError_t cudaDeviceCanAccessPeer(int* can, int, int) {
  *can = has_peers() ? 1 : 0;
  return cudaSuccess;
}
cudaError_t cudaDeviceEnablePeerAccess(int, unsigned) {
  return has_peers() ? cudaSuccess : report(cudaErrorPeerAccessUnsupported);
}
const char* cudaGetErrorName(cudaError_t error) { return error == cudaSuccess ? "cudaSuccess" : "an error"; }
const char* cudaGetErrorString(cudaError_t error) {
  static thread_local char text[32];
  std::snprintf(text, sizeof(text), "error %d", static_cast<int>(error));
  return text;
}
cudaError_t cudaGetLastError() {
  const cudaError_t error = t_error;
  t_error = cudaSuccess;
  return error;
}

}  // extern "C"
