#include "runtime/backends/cpu/rates.h"

#include <sched.h>

#include <algorithm>
#include <thread>

#include "graph/base/memory_limit.h"

namespace tessera::cpu {

namespace {

struct IsaRow {
  const char* name;
  bool (*present)();
  double flops_per_s_per_core;  // a packed f32 product at about 2.5 GHz on a shared physical core
};

constexpr IsaRow kIsas[] = {
#if defined(__x86_64__)
    {"avx512", [] { return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl"); }, 80e9},
    {"avx2", [] { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }, 50e9},
#endif
    {"baseline", [] { return true; }, 12e9},
};

// Streaming bandwidth grows with the cores until the memory controllers are busy.
constexpr double kBytesPerSecondPerCore = 8e9;
constexpr double kMostBytesPerSecond = 60e9;
constexpr double kLaunchSeconds = 2e-6;
constexpr double kBarrierSeconds = 10e-6;
constexpr double kUsableShare = 0.8;  // of the process's memory; the rest is the host program's

int32_t cpuset_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) == 0 && CPU_COUNT(&set) > 0) return CPU_COUNT(&set);
  return std::max<int32_t>(1, static_cast<int32_t>(std::thread::hardware_concurrency()));
}

int64_t memory_limit() {
  const int64_t bytes = process_memory_limit();
  // Physical memory varies by a few pages between boots; whole 64 MiB do not.
  constexpr int64_t kUnit = int64_t{64} << 20;
  return std::max(kUnit, static_cast<int64_t>(static_cast<double>(bytes) * kUsableShare) / kUnit * kUnit);
}

}  // namespace

Rates machine_rates() {
  Rates rates;
  rates.cores = cpuset_cores();
  for (const IsaRow& row : kIsas) {
    if (!row.present()) continue;
    rates.isa = row.name;
    rates.matmul_flops_per_s = row.flops_per_s_per_core * rates.cores;
    break;
  }
  rates.memory_bytes_per_s = std::min(kBytesPerSecondPerCore * rates.cores, kMostBytesPerSecond);
  rates.core_memory_bytes_per_s = kBytesPerSecondPerCore;
  rates.launch_s = kLaunchSeconds;
  // A collective reads every member's buffer and writes its own through the same memory.
  rates.link_bytes_per_s = rates.memory_bytes_per_s / 2;
  rates.link_latency_s = kBarrierSeconds;
  rates.memory_bytes = memory_limit();
  return rates;
}

}  // namespace tessera::cpu
