// Kernels of hardware that is absent: every op has one, without scratch memory, whose time follows from the device's rates.
#pragma once

#include "graph/cluster.h"
#include "graph/kernel_catalog.h"

namespace tessera {

class AbsentCatalog : public KernelCatalog {
 public:
  explicit AbsentCatalog(const DeviceKind& kind) : kind_(kind) {}

  // Of products by their extents, as the op's sharding rule has them, and by how often its operations are those of one;
  // of everything else by bytes, or at the rate of the operands' type. Never less than its bytes take, and a launch.
  Result<KernelChoice> query(const OpDef& op, const OpView& view) const override;
  uint64_t fingerprint() const override { return 0; }

 private:
  const DeviceKind kind_;
};

}  // namespace tessera
