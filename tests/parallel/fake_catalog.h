// A catalog for tests: one kernel for everything, a little scratch, durations from the op's own cost.
#pragma once

#include "graph/kernel_catalog.h"

namespace tessera {

class FakeCatalog final : public KernelCatalog {
 public:
  explicit FakeCatalog(int64_t workspace_bytes = 0) : workspace_bytes_(workspace_bytes) {}
  Result<KernelChoice> query(const OpDef& op, const OpView& view) const override {
    double seconds = 1e-6;
    if (op.cost != nullptr) {
      const OpCost cost = op.cost(view);
      seconds += cost.flops / 1e11 + (cost.bytes_read + cost.bytes_written) / 1e10;
    }
    return KernelChoice{"fake", workspace_bytes_, seconds};
  }
  uint64_t fingerprint() const override { return 7; }

 private:
  int64_t workspace_bytes_;
};

}  // namespace tessera
