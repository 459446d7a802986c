// DeviceCatalog: KernelCatalog answered by a backend's kernel_query. All devices of a set are of one kind, so
// device 0 answers for all. Answers, refusals too, are kept.
#pragma once

#include <mutex>
#include <string>
#include <unordered_map>

#include "graph/kernel_catalog.h"
#include "runtime/backend_abi.h"

namespace tessera {

class DeviceCatalog final : public KernelCatalog {
 public:
  // `seconds_scale` corrects the backend's seconds for a pool smaller or larger than the machine it speaks
  // of.
  DeviceCatalog(const tsr_backend_api& api, int32_t ordinal, double seconds_scale)
      : api_(api), ordinal_(ordinal), seconds_scale_(seconds_scale) {}

  Result<KernelChoice> query(const OpDef& op, const OpView& view) const override;
  uint64_t fingerprint() const override;

 private:
  const tsr_backend_api& api_;
  int32_t ordinal_;
  double seconds_scale_;
  mutable std::mutex mutex_;
  mutable std::unordered_map<std::string, Result<KernelChoice>> answers_;
};

}  // namespace tessera
