// Kernels of absent hardware: every op has one, without workspace, timed by the device's rates.
#pragma once

#include "graph/cluster.h"
#include "graph/kernel_catalog.h"

namespace tessera {

class AbsentCatalog : public KernelCatalog {
 public:
  explicit AbsentCatalog(const DeviceKind& kind) : kind_(kind) {}

  // Matmuls by extents from the op's sharding rule, times the number of matmuls it amounts to;
  // other ops by bytes, or at the rate of their type. At least its bytes' time and a launch.
  Result<KernelChoice> query(const OpDef& op, const OpView& view) const override;
  uint64_t fingerprint() const override { return 0; }

 private:
  const DeviceKind kind_;
};

}  // namespace tessera
