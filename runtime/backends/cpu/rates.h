// Rates: the figures of this machine behind the time estimate. They come from a fixed table by instruction
// set and core count, never from a measurement, so that the same machine always gets the same plan.
#pragma once

#include <cstdint>

namespace tessera::cpu {

struct Rates {
  const char* isa = "";           // "avx512", "avx2", "baseline"
  int32_t cores = 1;              // of the cpuset
  double matmul_flops_per_s = 0;  // f32, all cores
  double memory_bytes_per_s = 0;  // all cores
  double core_memory_bytes_per_s = 0;
  double launch_s = 0;
  double link_bytes_per_s = 0, link_latency_s = 0;
  int64_t memory_bytes = 0;  // what plans may use of the host's memory
};

Rates machine_rates();

}  // namespace tessera::cpu
