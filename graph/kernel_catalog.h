// KernelCatalog: the backend's answers about kernels. runtime/ implements it by the
// backend's `prepare`; a saved device profile implements it for absent hardware.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "graph/base/result.h"
#include "graph/op_def.h"

namespace tessera {

struct KernelChoice {
  std::string variant;          // "packed_avx3"; `prepare` later delivers exactly this one or fails
  int64_t workspace_bytes = 0;  // scratch that the kernel may write during a launch, contents undefined before and after
  double seconds = 0;           // predicted duration of one launch
};

class KernelCatalog {
 public:
  virtual ~KernelCatalog() = default;
  // Returns the kernel that would run `op` on these local operands, or the reason why none would. Thread-safe.
  virtual Result<KernelChoice> query(const OpDef& op, const OpView& view) const = 0;
  // Returns whether the backend has fused kernels (parallel/lowering/kernel_fusion.h).
  virtual bool fuses() const { return false; }
  // Returns whether it has fused kernels whose results have the bits of their parts' (FusionPattern::is_exact).
  virtual bool fuses_exactly() const { return fuses(); }
  // Changes whenever an answer could; the Program stores it.
  virtual uint64_t fingerprint() const = 0;
};

}  // namespace tessera
