#include "runtime/backends/cuda/rates.h"

#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <map>
#include <mutex>
#include <string>

#include "runtime/backends/cuda/cuda_status.h"

namespace tessera::cuda {

namespace {

// Generation: operations (two a multiply-add) that a multiprocessor's tensor cores do in a cycle on dense
// Rates of bf16 matmuls with f32 sums: 2250 TFLOP/s for a B200, 989 H100,
// 362 L40S, 125 A10, 312 A100, per multiprocessor and boost clock. Usual
// links: NVLink or PCIe between devices, PCIe with 16 lanes of their
// generation to the host, at the rate of copies from pinned memory.
struct Generation {
  int major, minor;
  double flops_per_cycle;
  double link_bytes_per_s, host_link_bytes_per_s;
};
constexpr Generation kGenerations[] = {{12, 0, 1024, 32e9, 50e9}, {10, 0, 8192, 900e9, 50e9},
                                       {9, 0, 4096, 450e9, 50e9}, {8, 9, 1024, 32e9, 25e9},
                                       {8, 6, 1024, 32e9, 25e9},  {8, 0, 2048, 300e9, 25e9},
                                       {0, 0, 512, 16e9, 12e9}};
// Shares of the peak that matmuls and copies reach.
constexpr double kReachableMatmul = 0.75, kReachableMemory = 0.88, kUsableMemory = 0.92;
constexpr double kLaunchSeconds = 4e-6, kLinkLatencySeconds = 12e-6;

int attribute(cudaDeviceAttr which, int device) {
  int value = 0;
  if (cudaDeviceGetAttribute(&value, which, device) != cudaSuccess) (void)cudaGetLastError();
  return value;
}

struct Probe {
  int count = 0;
  std::string reason;
};

Probe probe() {
  Probe found;
  const cudaError_t error = cudaGetDeviceCount(&found.count);
  if (error == cudaSuccess && found.count > 0) return found;
  (void)cudaGetLastError();
  found.count = 0;
  void* driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
  if (driver == nullptr)
    found.reason = "no NVIDIA driver on this machine (libcuda.so.1 cannot be opened)";
  else if (error == cudaErrorInsufficientDriver)
    found.reason = format("the NVIDIA driver is too old for CUDA {}.{}", CUDART_VERSION / 1000,
                          CUDART_VERSION % 1000 / 10);
  else
    found.reason = error == cudaSuccess ? std::string("the NVIDIA driver finds no GPU")
                                        : format("the NVIDIA driver answers {} ({})", cudaGetErrorName(error),
                                                 cudaGetErrorString(error));
  if (driver != nullptr) dlclose(driver);
  return found;
}

const Probe& probed() {
  static const Probe found = probe();
  return found;
}

Result<Rates> ask(int32_t ordinal) {
  if (ordinal < 0 || ordinal >= device_count())
    return Status(StatusCode::kNotFound,
                  format("CUDA device {} does not exist, {} found", ordinal, device_count()));
  cudaDeviceProp properties{};
  TSR_RETURN_IF_ERROR(from_cuda(cudaGetDeviceProperties(&properties, ordinal), "cudaGetDeviceProperties"));
  Rates rates;
  std::snprintf(rates.name, sizeof(rates.name), "%.95s", properties.name);
  rates.major = properties.major;
  rates.minor = properties.minor;
  rates.multiprocessors = properties.multiProcessorCount;
  for (const Generation& row : kGenerations) {
    if (std::pair(rates.major, rates.minor) < std::pair(row.major, row.minor)) continue;
    const double cycles = 1e3 * attribute(cudaDevAttrClockRate, ordinal);  // kHz
    rates.matmul_flops_per_s = kReachableMatmul * row.flops_per_cycle * cycles * rates.multiprocessors;
    rates.link_bytes_per_s = row.link_bytes_per_s;
    rates.host_link_bytes_per_s = row.host_link_bytes_per_s;
    break;
  }
  // Two transfers a clock over the bus.
  rates.memory_bytes_per_s = kReachableMemory * 2e3 * attribute(cudaDevAttrMemoryClockRate, ordinal) *
                             attribute(cudaDevAttrGlobalMemoryBusWidth, ordinal) / 8;
  if (!(rates.memory_bytes_per_s > 0)) rates.memory_bytes_per_s = 1e12;
  if (!(rates.matmul_flops_per_s > 0)) rates.matmul_flops_per_s = 100e12;
  rates.launch_s = kLaunchSeconds;
  rates.link_latency_s = rates.host_link_latency_s = kLinkLatencySeconds;
  constexpr int64_t kUnit = int64_t{64} << 20;
  rates.memory_bytes =
      static_cast<int64_t>(static_cast<double>(properties.totalGlobalMem) * kUsableMemory) / kUnit * kUnit;
  return rates;
}

}  // namespace

const char* unavailable_reason() { return probed().reason.empty() ? nullptr : probed().reason.c_str(); }
int32_t device_count() { return probed().count; }

Result<Rates> device_rates(int32_t ordinal) {
  static std::mutex mutex;
  static std::map<int32_t, Rates> known;
  const std::lock_guard lock(mutex);
  if (const auto found = known.find(ordinal); found != known.end()) return found->second;
  TSR_ASSIGN_OR_RETURN(const Rates rates, ask(ordinal));
  known.emplace(ordinal, rates);
  return rates;
}

}  // namespace tessera::cuda
