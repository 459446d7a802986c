// Rates: the figures behind time estimates. They come from a table by compute capability and from the
// driver's description of the device, never from a measurement, so that the same device always gets the same
// plan.
#pragma once

#include <cstdint>

#include "graph/base/result.h"

namespace tessera::cuda {

struct Rates {
  char name[96] = {};
  int major = 0, minor = 0, multiprocessors = 0;
  double matmul_flops_per_s = 0;  // dense bf16 products
  double memory_bytes_per_s = 0;
  double launch_s = 0;
  double link_bytes_per_s = 0, link_latency_s = 0;            // between devices
  double host_link_bytes_per_s = 0, host_link_latency_s = 0;  // to pinned host memory, each direction
  int64_t memory_bytes = 0;                                   // what plans may use
};

// Rates of device `ordinal`; the driver is asked once.
Result<Rates> device_rates(int32_t ordinal);

// Why no device can be used, in one line, or null.
const char* unavailable_reason();
int32_t device_count();

}  // namespace tessera::cuda
