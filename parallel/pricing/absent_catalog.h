// Kernels of hardware that is absent: every op has one, without scratch memory, whose time follows from the device's rates.
#pragma once

#include "graph/cluster.h"
#include "graph/kernel_catalog.h"

namespace tessera {

class AbsentCatalog final : public KernelCatalog {
 public:
  explicit AbsentCatalog(const DeviceKind& kind) : kind_(kind) {}

  // The longer of computing at the rate of the operands' type and of moving its bytes, and a launch.
  Result<KernelChoice> query(const OpDef& op, const OpView& view) const override;
  uint64_t fingerprint() const override { return 0; }

 private:
  const DeviceKind kind_;
};

}  // namespace tessera
